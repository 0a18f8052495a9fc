"""The space: values of events to the integer lattice and back.

In reading order:

    structs        JSON and settings as typed values, with errors for people
    times          dates and timestamps, read from text as Spark reads them
    labels         integer labels for strings and long decimals, given out as clauses mention them
    arrays         names for types of arrays; Numba kernels on one column of coordinates
    axis           attribute types: values to coordinates and back, one at a time and as Arrow arrays
    decimals       decimals as attribute types
    floating       doubles and floats as attribute types
    attribute      a named axis with a domain and a place for NULL
    declaration    attributes from text and from JSON
    schemas        attributes from the schemas of tables, Arrow's and Spark's
    space          `Space`: an ordered set of attributes; events to points
    union          what one space adds to another
    event_columns  which columns of a table hold the attributes of a space
    json_values    events in JSON, as people write and read them
    batches        many plain events to points at once
"""
