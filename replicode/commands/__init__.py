"""The verbs of the command line, one file each: read the arguments, call the Python verb, print what it found."""
