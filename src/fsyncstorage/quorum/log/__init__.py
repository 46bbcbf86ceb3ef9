"""How the log is asked, and which answers are believed.

- interface     the calls that an engine must offer
- members       what single members say, and when it is believed
- reading       reads the next records, and says what to do about a refusal
- notes         which node owns a name, and what that node has kept
- outage        the log does not answer: when to retry, and what to report
"""
