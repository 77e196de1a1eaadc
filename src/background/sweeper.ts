import { DurableObject } from 'cloudflare:workers'
import type { SystemCtx } from '../ctx.ts'
import { createCtx } from '../ctx.ts'
import { sendDueGitBranches } from '../management/branching/connections/git-branch-task.ts'
import { workerLeases } from '../management/programs/workers/worker-tasks.ts'
import { projectLeases } from '../management/projects/projects/tasks.ts'
import { wakeDrains } from '../outbound/drains/sweep.ts'
import { wakeOverdue } from '../outbound/webhooks/sweep.ts'
import type { Bindings } from '../platform/bindings.ts'
import { describeError } from '../platform/http/log.ts'

const INTERVAL_MS = 10_000

const DUTIES: Record<string, (ctx: SystemCtx) => Promise<unknown>> = {
  webhooks: wakeOverdue,
  log_drains: wakeDrains,
  project_tasks: projectLeases.sendDue,
  worker_tasks: workerLeases.sendDue,
  git_branches: sendDueGitBranches,
}

/** Runs urgent duties every 10 s, because the cron runs only once a minute. The cron sets the alarm, and sets it again if it is lost. */
export class WebhookSweeper extends DurableObject<Bindings> {
  async arm(): Promise<void> {
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now() + INTERVAL_MS)
  }

  override async alarm(): Promise<void> {
    const ctx = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
    try {
      await Promise.all(
        Object.entries(DUTIES).map(([duty, run]) =>
          run(ctx).catch((error) => ctx.log.error('sweep_failed', { duty, error: describeError(error) })),
        ),
      )
    } finally {
      await this.ctx.storage.setAlarm(Date.now() + INTERVAL_MS)
    }
  }
}
