if __name__ != "edgewise.diagrams":
    raise ImportError("import edgewise.diagrams; the bare name would load every class a second time")
