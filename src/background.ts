import { buryProjectTask, runProjectTask, sendDueProjectTasks } from './areas/projects/jobs.ts'
import { heartbeats } from './db/schema/index.ts'
import { purgeExpired } from './delivery/purge.ts'
import { wakeOverdue } from './delivery/sweep.ts'
import { wakeSender } from './delivery/wake.ts'
import type { SystemCtx } from './env.ts'
import type { Handlers } from './queue/consume.ts'
import type { Duties } from './queue/sweep.ts'
import { sweepStorage } from './storage/sweep.ts'

export const handlers: Handlers = {
  'project-task': {
    run: (ctx, { id }) => runProjectTask(ctx, id),
    bury: (ctx, { id }) => buryProjectTask(ctx, id),
  },
  webhook: { run: wakeSender },
  heartbeat: { run: (ctx, { at }) => recordHeartbeat(ctx, new Date(at)) },
}

export const duties: Duties = {
  heartbeat: ({ bindings, now }) => bindings.PROJECT_TASKS.send({ type: 'heartbeat', at: now().getTime() }),
  project_tasks: sendDueProjectTasks,
  webhooks: wakeOverdue,
  webhook_sweeper: ({ bindings: { WEBHOOK_SWEEPER: sweeper } }) => sweeper.get(sweeper.idFromName('only')).arm(),
  webhook_purge: purgeExpired,
  storage: sweepStorage,
  sql_sessions: ({ engine }) => engine.sweep(),
}

/** A message that came all the way from the cron through the queue: /health reads when that last happened. */
async function recordHeartbeat({ db }: SystemCtx, at: Date): Promise<void> {
  await db.insert(heartbeats).values({ name: 'queue', at }).onConflictDoUpdate({ target: heartbeats.name, set: { at } })
}
