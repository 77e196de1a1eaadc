import type { SystemCtx } from '../ctx.ts'
import { purgeOAuth } from '../management/account/oauth/sweep.ts'
import { branchJobs } from '../management/branching/branches/jobs.ts'
import { removeDueBranches } from '../management/branching/branches/remove-branch.ts'
import { gitBranchLeases } from '../management/branching/connections/followed-branch.ts'
import { purgeGitDeliveries, runGitBranchTask } from '../management/branching/connections/git-branch-task.ts'
import { runScheduledBackups, scheduleDailyBackups } from '../management/database/backups/backup-schedule.ts'
import { backupJobs } from '../management/database/backups/jobs.ts'
import { removeOldBackups } from '../management/database/backups/remove-backups.ts'
import { endDueLogins } from '../management/database/database-access/temporary-logins.ts'
import { keepReadOnly } from '../management/database/database-settings/read-only.ts'
import { replicaJobs } from '../management/database/database-settings/replicas.ts'
import { associationLeases, workOnAssociation } from '../management/database/private-link/association-task.ts'
import { pullPostgresLogs, purgeLogCursors } from '../management/observability/analytics/pull-postgres-logs.ts'
import { removeUnusedDeployments } from '../management/programs/functions/remove-deployments.ts'
import { workerJobs } from '../management/programs/workers/jobs.ts'
import { removeOversizedUploads, sweepUploads } from '../management/programs/workers/remove-uploads.ts'
import { runWorkerTask, workerLeases } from '../management/programs/workers/worker-tasks.ts'
import { addonJobs } from '../management/projects/addons/jobs.ts'
import { projectJobs } from '../management/projects/projects/jobs.ts'
import { moveJobs, settleMoves } from '../management/projects/projects/move-project.ts'
import { upgradeProjects } from '../management/projects/projects/prepare-databases.ts'
import { reconcileProjects } from '../management/projects/projects/reconcile.ts'
import { runProjectTask } from '../management/projects/projects/task-run.ts'
import { type Jobs, projectLeases } from '../management/projects/projects/tasks.ts'
import { recoverProjects } from '../management/projects/projects/unhealthy-projects.ts'
import { restoreWokenProjects } from '../management/projects/projects/woken-projects.ts'
import { upgradeJobs } from '../management/projects/upgrades/jobs.ts'
import { refreshIssuers } from '../management/service-config/third-party-auth/refresh-keys.ts'
import { heartbeats } from '../model/tables/index.ts'
import { expireEntries, removeDeletedDrains, wakeDrains } from '../outbound/drains/sweep.ts'
import { purgeLogs } from '../outbound/logs/purge.ts'
import { purgeEndpoints, purgeExpired } from '../outbound/webhooks/purge.ts'
import { wakeOverdue } from '../outbound/webhooks/sweep.ts'
import { wakeSender } from '../outbound/webhooks/wake-senders.ts'
import { purgeRequestCounts } from '../services/gateway/purge-request-counts.ts'
import { endIdleIsolates } from '../services/runtime/isolates.ts'
import { reportBusyProcesses } from '../services/runtime/processes/process-table.ts'
import { sweepStorage } from '../services/storage/sweep-bytes.ts'
import { callScheduledWorkers } from '../services/workers/cron-calls.ts'
import { sweepImages } from '../services/workers/worker-images.ts'
import type { Handlers } from './consumer.ts'
import type { Duties } from './cron.ts'

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
    handleDead: (ctx, { id }) => projectLeases.postponeDead(ctx, id),
    detachedMax: 20,
  },
  'worker-task': {
    run: (ctx, { id }) => runWorkerTask(ctx, workerJobs, id),
    handleDead: (ctx, { id }) => workerLeases.postponeDead(ctx, id),
    // Detached builds run in addition to the four of a batch. On one machine, the builder builds one program at a time.
    detachedMax: 4,
  },
  'private-link': { run: (ctx, { id }) => workOnAssociation(ctx, id), detachedMax: 4 },
  'git-branch': {
    run: (ctx, { id }) => runGitBranchTask(ctx, id),
    detachedMax: 20,
  },
  webhook: { run: wakeSender },
  heartbeat: { run: (ctx, { at }) => recordHeartbeat(ctx, new Date(at)) },
}

/** Duties that the sweeper runs every 10 s. */
export const urgentDuties: Duties = {
  project_tasks: projectLeases.sendDue,
  worker_tasks: workerLeases.sendDue,
  git_branches: gitBranchLeases.sendDue,
  webhooks: wakeOverdue,
  log_drains: wakeDrains,
}

/** Duties that the cron runs every minute: also the urgent ones, in case the alarm of the sweeper is lost. */
export const duties: Duties = {
  ...urgentDuties,
  heartbeat: ({ bindings, now }) => bindings.PROJECT_TASKS.send({ type: 'heartbeat', at: now().getTime() }),
  moves: settleMoves,
  woken_projects: restoreWokenProjects,
  unhealthy_projects: recoverProjects,
  worker_uploads: sweepUploads,
  worker_uploads_oversized: removeOversizedUploads,
  worker_images: sweepImages,
  worker_crons: callScheduledWorkers,
  branches: removeDueBranches,
  git_deliveries: purgeGitDeliveries,
  webhook_sweeper: ({ bindings: { WEBHOOK_SWEEPER: sweeper } }) => sweeper.get(sweeper.idFromName('only')).arm(),
  webhook_purge: purgeExpired,
  webhook_endpoints: purgeEndpoints,
  log_drain_entries: expireEntries,
  log_drains_deleted: removeDeletedDrains,
  idle_programs: endIdleIsolates,
  busy_programs: reportBusyProcesses,
  postgres_logs: pullPostgresLogs,
  postgres_log_cursors: purgeLogCursors,
  logs: purgeLogs,
  request_counts: purgeRequestCounts,
  storage: sweepStorage,
  function_deployments: removeUnusedDeployments,
  read_only: keepReadOnly,
  temporary_logins: endDueLogins,
  backup_schedules: scheduleDailyBackups,
  scheduled_backups: runScheduledBackups,
  old_backups: removeOldBackups,
  third_party_keys: refreshIssuers,
  private_links: associationLeases.sendDue,
  oauth: purgeOAuth,
  reconcile: reconcileProjects,
  upgrades: upgradeProjects,
}

/** Records that a message passed from the cron through the queue. /health reports the time of the last one. */
async function recordHeartbeat({ db }: SystemCtx, at: Date): Promise<void> {
  await db.insert(heartbeats).values({ name: 'queue', at }).onConflictDoUpdate({ target: heartbeats.name, set: { at } })
}
