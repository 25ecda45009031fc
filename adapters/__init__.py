if __name__ != "edgewise.adapters":
    raise ImportError("import edgewise.adapters; the bare name would load every class a second time")
