"""Many tasks, kept and resumed, with what a person sees meanwhile; everything about one network as files."""
