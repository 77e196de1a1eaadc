import { addonJobs } from './areas/addons/jobs.ts'
import { backupJobs } from './areas/backups/jobs.ts'
import { runScheduledBackups, scheduleDailyBackups } from './areas/backups/schedule.ts'
import { removeOldBackups } from './areas/backups/sweep.ts'
import { branchJobs } from './areas/branches/jobs.ts'
import { removeDueBranches } from './areas/branches/removal.ts'
import { lookAtGitBranch, purgeGitDeliveries, sendDueGitBranches } from './areas/connections/look.ts'
import { endDueLogins } from './areas/database-access/logins.ts'
import { keepReadOnly } from './areas/database-settings/read-only.ts'
import { replicaJobs } from './areas/database-settings/replicas.ts'
import { removeUnusedDeployments } from './areas/functions/sweep.ts'
import { purgeOAuth } from './areas/oauth/sweep.ts'
import { workOnAssociation, workOnDueAssociations } from './areas/private-link/work.ts'
import { projectJobs } from './areas/projects/jobs.ts'
import { moveJobs, settleMoves } from './areas/projects/move.ts'
import { reconcileProjects } from './areas/projects/reconcile.ts'
import { runProjectTask } from './areas/projects/task-run.ts'
import { type Jobs, projectLeases } from './areas/projects/tasks.ts'
import { upgradeProjects } from './areas/projects/upgrade.ts'
import { refreshIssuers } from './areas/third-party-auth/refresh.ts'
import { upgradeJobs } from './areas/upgrades/jobs.ts'
import { workerJobs } from './areas/workers/jobs.ts'
import { removeOversizedUploads, sweepUploads } from './areas/workers/sweep.ts'
import { runWorkerTask, workerLeases } from './areas/workers/tasks.ts'
import { heartbeats } from './db/schema/index.ts'
import { purgeEndpoints, purgeExpired } from './delivery/purge.ts'
import { wakeOverdue } from './delivery/sweep.ts'
import { wakeSender } from './delivery/wake.ts'
import { expireEntries, removeDeletedDrains, wakeDrains } from './drains/sweep.ts'
import type { SystemCtx } from './env.ts'
import { pullPostgresLogs, purgePostgresLogs } from './logs/pull.ts'
import { purgeLogs } from './logs/purge.ts'
import type { Handlers } from './queue/consume.ts'
import type { Duties } from './queue/sweep.ts'
import { endIdleIsolates } from './runtime/isolates.ts'
import { sweepStorage } from './storage/sweep.ts'
import { purgeRequestCounts } from './usage/purge.ts'
import { sweepImages } from './workers/images.ts'
import { callScheduledWorkers } from './workers/scheduled.ts'

const jobs: Jobs = {
  ...projectJobs,
  ...branchJobs,
  ...backupJobs,
  ...addonJobs,
  ...replicaJobs,
  ...upgradeJobs,
  ...moveJobs,
}

export const handlers: Handlers = {
  'project-task': {
    run: (ctx, { id }) => runProjectTask(ctx, jobs, id),
    bury: (ctx, { id }) => projectLeases.bury(ctx, id),
    looseMax: 20,
  },
  'worker-task': {
    run: (ctx, { id }) => runWorkerTask(ctx, workerJobs, id),
    bury: (ctx, { id }) => workerLeases.bury(ctx, id),
    // Beside the four of a batch; the builder is one process.
    looseMax: 4,
  },
  'private-link': { run: (ctx, { id }) => workOnAssociation(ctx, id), looseMax: 4 },
  'git-branch': {
    run: (ctx, { id }) => lookAtGitBranch(ctx, id),
    looseMax: 20,
  },
  webhook: { run: wakeSender },
  heartbeat: { run: (ctx, { at }) => recordHeartbeat(ctx, new Date(at)) },
}

export const duties: Duties = {
  heartbeat: ({ bindings, now }) => bindings.PROJECT_TASKS.send({ type: 'heartbeat', at: now().getTime() }),
  project_tasks: projectLeases.sendDue,
  moves: settleMoves,
  worker_tasks: workerLeases.sendDue,
  worker_uploads: sweepUploads,
  worker_uploads_oversized: removeOversizedUploads,
  worker_images: sweepImages,
  worker_crons: callScheduledWorkers,
  branches: removeDueBranches,
  git_branches: sendDueGitBranches,
  git_deliveries: purgeGitDeliveries,
  webhooks: wakeOverdue,
  webhook_sweeper: ({ bindings: { WEBHOOK_SWEEPER: sweeper } }) => sweeper.get(sweeper.idFromName('only')).arm(),
  webhook_purge: purgeExpired,
  webhook_endpoints: purgeEndpoints,
  log_drains: wakeDrains,
  log_drain_entries: expireEntries,
  log_drains_deleted: removeDeletedDrains,
  idle_programs: endIdleIsolates,
  invocations: (ctx) => purgeLogs(ctx, 'invocations'),
  postgres_logs: pullPostgresLogs,
  postgres_logs_purge: purgePostgresLogs,
  request_counts: purgeRequestCounts,
  storage_requests: (ctx) => purgeLogs(ctx, 'storage_requests'),
  storage: sweepStorage,
  function_deployments: removeUnusedDeployments,
  read_only: keepReadOnly,
  temporary_logins: endDueLogins,
  backup_schedules: scheduleDailyBackups,
  scheduled_backups: runScheduledBackups,
  old_backups: removeOldBackups,
  third_party_keys: refreshIssuers,
  private_links: workOnDueAssociations,
  oauth: purgeOAuth,
  reconcile: reconcileProjects,
  upgrades: upgradeProjects,
}

/** A message that came all the way from the cron through the queue: /health reads when that last happened. */
async function recordHeartbeat({ db }: SystemCtx, at: Date): Promise<void> {
  await db.insert(heartbeats).values({ name: 'queue', at }).onConflictDoUpdate({ target: heartbeats.name, set: { at } })
}
