#!/bin/bash
# Interactive work on a card. The short way is `gpu-run`; this is what it does, with everything to choose.
# The partition short is for work of a few hours that is never stopped for others.
exec srun --partition=short --gres=gpu:1 --time=02:00:00 --pty "${SHELL:-/bin/bash}" -l
