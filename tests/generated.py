"""Settings for Hypothesis: that a machine is slow is no failure.

Tests take `given` and `settings` from here, not from Hypothesis.
"""

import hypothesis

hypothesis.settings.register_profile(
    'any-machine', deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile('any-machine')

given = hypothesis.given
settings = hypothesis.settings
