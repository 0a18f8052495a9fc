"""What the commands do in this process: files in, files out.

In reading order:

    match   files of events against subscriptions
    rules   reduce, learn and audit over files of subscriptions
    engine  the engine: a method for each command
"""
