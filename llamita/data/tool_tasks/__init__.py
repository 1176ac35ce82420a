"""A synthetic tool-use set: conversations with exact calls, results and answers.

What people say comes from small grammars of wordings (`wording`), one module for each kind of task.
Two splits, `train` and `test`, share no wording (no five words in a row) and no value of an
argument (`values`), so that what is measured on `test` is neither a phrase nor a number that was
learned.
"""
