#!/bin/sh
# From data on this machine to a model in storage. The stack has ranklift:storage, and you are one of its ranklift:dataOperators.
set -eu
cd "$(dirname "$0")"
[ -d points ] || python3 make_points.py points

fab up                                                         # 1. a cluster with storage
fab data.put points                                            # 2. the data into storage
fab data.ls                                                    # 3. what is there
JOB=$(fab launch job.yml --detach)                             # 4. its nodes fetch the data, train, and send the model
fab wait "$JOB"                                                # 5. until the job has ended
fab collect "$JOB" --into results                              # 6. logs and outputs to this machine
fab data.ls models/points                                      # 7. the model, in storage
