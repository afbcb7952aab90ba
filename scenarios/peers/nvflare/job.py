"""Submits the job to the server and waits for its end: ``python job.py FOLDER``. The exit code is 0 if it finished.

It needs the administrator's startup kit. The job starts when all sites are connected.
"""

import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from nvflare.app_common.np.recipes import NumpyFedAvgRecipe
from nvflare.fuel.flare_api.flare_api import new_secure_session
from rounds import Rounds
from start import KITS

ADMIN = "admin@lab.org"
ARRAYS = 4


def connect(folder):
    """A session with the server, as soon as it answers."""
    kit = folder / ADMIN
    shutil.copytree(KITS / ADMIN, kit)
    while True:
        try:
            return new_secure_session(ADMIN, str(kit))
        except Exception as error:
            print(f"the server does not answer yet: {error}", flush=True)
            time.sleep(1)


def wait_for_sites(session, sites):
    while True:
        connected = session.get_system_info().client_info
        if len(connected) >= sites:
            return
        time.sleep(1)


def exported_job(folder, sites):
    """The folder of the job."""
    parameters = int(os.environ.get("PARAMETERS", "4000"))
    weights = np.zeros((ARRAYS, parameters // ARRAYS), dtype=np.float32)
    first = folder / "first.npy"
    np.save(first, weights)
    recipe = NumpyFedAvgRecipe(
        name="peers",
        initial_ckpt=str(first),
        min_clients=int(os.environ.get("MIN_CLIENTS", sites)),
        num_rounds=3,
        train_script="nvflare/train.py",
    )
    recipe._job.to_server(Rounds(), id="rounds")
    recipe.export(str(folder / "jobs"))
    return folder / "jobs" / "peers"


def main():
    folder = Path(sys.argv[1])
    sites = int(os.environ["SITES"])
    session = connect(folder)
    wait_for_sites(session, sites)
    job = session.submit_job(str(exported_job(folder, sites)))
    print(f"submitted {job}", flush=True)
    status = ""
    while not status.startswith("FINISHED"):
        time.sleep(1)
        status = session.get_job_meta(job)["status"]
    print(f"the job ended: {status}", flush=True)
    session.close()
    os._exit(0 if status == "FINISHED:COMPLETED" else 1)  # threads of the session do not end


if __name__ == "__main__":
    main()
