#!/bin/bash
# llamita train on two machines of eight GPUs under SLURM. What follows the script's name goes to
# `llamita train`; DATA, RUN and the program lie where all machines see them:
#
#     sbatch docs/slurm.sh /shared/data -o /shared/run --params 1.3b --tokens 26000000000
#
# Submit the same line as often as the run may need: jobs of one name wait for each other, each goes
# on after the last checkpoint, and one that finds the run finished ends at once.
#
#SBATCH --job-name=llamita
#SBATCH --dependency=singleton
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=12:00:00
#SBATCH --output=%x-%j.log
# Five minutes before the end every rank gets SIGTERM: all finish the step, save together and stop.
#SBATCH --signal=TERM@300

set -euo pipefail

# torchrun kills ranks that are not done saving after this many seconds; of itself after 30.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=280
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / SLURM_GPUS_ON_NODE))

# All machines meet at the first. Two jobs that share it meet at different ports.
machines=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${machines%%$'\n'*}
port=$((20000 + SLURM_JOB_ID % 20000))

# Where one machine fails, the others get a minute to say what they saw.
srun --wait=60 --cpus-per-task="$SLURM_CPUS_PER_TASK" torchrun \
    --nnodes "$SLURM_NNODES" \
    --nproc-per-node "$SLURM_GPUS_ON_NODE" \
    --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-backend c10d \
    --rdzv-endpoint "$first:$port" \
    -m llamita train "$@"
