if __name__ != "edgewise.statemachine":
    raise ImportError("import edgewise.statemachine; the bare name would load every class a second time")
