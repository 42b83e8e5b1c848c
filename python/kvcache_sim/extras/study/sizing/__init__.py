"""The capacity of a configuration: the highest rate at which enough requests meet their objectives.

- ``search``     bisection over steps of 2 % between a rate that attains and one that does not; its interval
- ``candidate``  the candidates as cells of a study, and the search of each
- ``counts``     the smallest number of machines that holds a rate
- ``splits``     the best split into prefill and decode machines
- ``further``    the candidates that both add to those given
- ``question``   the question to all candidates, and the answer
- ``text``       the answer in lines and drawn
"""
