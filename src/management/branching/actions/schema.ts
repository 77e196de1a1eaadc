import * as z from 'zod'
import { RUN_STEPS, type RunStep, STEP_STATUSES } from '../../../model/tables/index.ts'
import { wholeNumber } from '../../../platform/http/common-values.ts'

const StepStatus = z.enum(STEP_STATUSES).meta({ id: 'StepStatus' })

export const ActionRun = z
  .object({
    id: z.uuid(),
    branch_id: z.uuid(),
    run_steps: z.array(
      z.object({
        name: z.enum(RUN_STEPS),
        status: StepStatus,
        created_at: z.iso.datetime(),
        updated_at: z.iso.datetime(),
      }),
    ),
    git_config: z.json(),
    workdir: z.string().nullable(),
    check_run_id: z.int().nullable(),
    created_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
  })
  .meta({ id: 'ActionRun' })

export const RUNS_MAX = 1_000

export const ActionRunsQuery = z.object({
  offset: wholeNumber(0, Number.MAX_SAFE_INTEGER).default(0),
  limit: wholeNumber(10, Number.MAX_SAFE_INTEGER)
    .default(100)
    .meta({ description: `At most ${RUNS_MAX} runs are returned, even if more are requested` }),
})

const statuses = Object.fromEntries(RUN_STEPS.map((name) => [name, StepStatus.optional()])) as Record<
  RunStep,
  z.ZodOptional<typeof StepStatus>
>
export const StepStatuses = z.object(statuses).meta({ id: 'StepStatuses' })

/** Any text is accepted: an invalid id gets the same 404 as an unknown one. */
export const RunId = z.string().min(1).max(64)

export const Done = z.object({ message: z.string() }).meta({ id: 'ActionRunUpdated' })
