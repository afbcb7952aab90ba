"""A component of the server: it reports the start and the end of each round, with the first weight."""

import json

import numpy as np
from nvflare.apis.fl_component import FLComponent
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType


def report(**values):
    print("::edgebed", json.dumps(values), flush=True)


class Rounds(FLComponent):
    def handle_event(self, event_type, fl_ctx):
        round = fl_ctx.get_prop(AppConstants.CURRENT_ROUND)
        if event_type == AppEventType.ROUND_STARTED:
            report(round=round + 1, phase="start")
        elif event_type == AppEventType.AFTER_AGGREGATION:
            model = fl_ctx.get_prop(AppConstants.AGGREGATION_RESULT)
            weights = next(iter(model.params.values()))
            report(round=round + 1, value=float(np.ravel(weights)[0]))
