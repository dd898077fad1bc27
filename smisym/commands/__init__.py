"""Commands of the command line, one group a module; they read options, call smisym and print."""
