import * as z from 'zod'
import { RUN_STEPS, type RunStep, STEP_STATUSES } from '../../db/schema/index.ts'
import { wholeNumber } from '../../http/values.ts'

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

export const ActionRunsQuery = z.object({
  offset: wholeNumber(0, 1_000_000).default(0),
  limit: wholeNumber(10, 1_000).default(100),
})

const statuses = Object.fromEntries(RUN_STEPS.map((name) => [name, StepStatus.optional()])) as Record<
  RunStep,
  z.ZodOptional<typeof StepStatus>
>
export const StepStatuses = z.object(statuses).meta({ id: 'StepStatuses' })

/** Whatever names no run is not found. */
export const RunId = z.string().min(1).max(64)

export const Done = z.object({ message: z.string() }).meta({ id: 'ActionRunUpdated' })
