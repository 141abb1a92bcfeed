"""DonkeyCar, both ends: the environment that drives a simulator, and a simulator to drive in.

Importing this registers the ids, so that `rtagent.env.donkey:donkey-generated-track-v0` works in
any program; inside rtagent the bare id does.
"""

from rtagent.env.donkey.scenes import register

register()
