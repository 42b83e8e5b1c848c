"""How much load a configuration holds: the highest rate at which enough requests meet their objectives.

- ``search``     bisection over steps of 2 % between a rate that attains and one that does not
- ``probe``      one run of a scenario, its arrivals faster or slower
- ``candidate``  the search of one configuration: a cell of a study, run like a sweep's
- ``question``   what is asked of all candidates
- ``plan``       the candidates laid out as cells
- ``answer``     candidates side by side: the cheapest design, the frontier of cost against rate
- ``text``, ``picture``  the answer in lines and drawn
"""
