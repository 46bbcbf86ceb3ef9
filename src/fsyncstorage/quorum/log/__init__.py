"""Who is asked for the log, and what is believed of an answer.

- interface     what is asked of the engine that keeps the log
- members       what its members say, and what is believed of it
- reading       reads what follows, and says what to do about a refusal
- notes         whose name it is, and what that node has kept
- outage        the log does not answer: when to try again, what is said
"""
