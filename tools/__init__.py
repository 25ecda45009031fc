if __name__ != "edgewise.tools":
    raise ImportError("import edgewise.tools; the bare name would load every class a second time")
