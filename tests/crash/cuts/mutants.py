"""A client or a server that does not tell the truth.

    python -m tests.crash.cuts.mutants MUTANT ARGUMENTS
"""
