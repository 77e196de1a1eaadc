import { and, count, eq, inArray, isNull } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { EngineUnavailable, SqlTimeout } from '../../../engine/engine-errors.ts'
import { memberRoles, users } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { ACTIVE } from '../../projects/projects/project-states.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { parseSettingsRow, selectSettings } from '../../projects/settings/read-settings.ts'
import { toAuthConfig } from '../../service-config/auth-config/stored-config.ts'
import { throwApiError } from '../database/service.ts'
import { restrictionOf } from '../database-settings/networks.ts'
import { checkDatabase } from './database.ts'
import { type Finding, toLint } from './finding.ts'
import { checkUnavailable, findingsFromFailure, projectNotActive } from './health.ts'
import {
  isDatabaseLint,
  isHealthLint,
  isSettingLint,
  lintsOf,
  type RequestableLint,
  reasonUncheckable,
} from './lints.ts'
import { type SettingFacts, settingChecks } from './settings.ts'

export const getPerformanceAdvisors = (ctx: Ctx, project: ProjectAccess) =>
  getAdvisors(ctx, project, lintsOf('PERFORMANCE'))

export const getSecurityAdvisors = (ctx: Ctx, project: ProjectAccess, only?: 'sql') =>
  getAdvisors(ctx, project, lintsOf('SECURITY', { settings: only === undefined }))

async function getAdvisors(ctx: Ctx, project: ProjectAccess, lints: readonly RequestableLint[]) {
  checkStatus(project.status)
  const facts = await readFacts(ctx, project)
  const findings = await checkDatabase(ctx, project, lints.filter(isDatabaseLint), facts.apiSchemas).catch(throwFailure)
  return { lints: toLints([...findings, ...checkSettings(lints, facts)]) }
}

/** The statement itself is valid, so a database error means a state problem, such as a catalogue that changes meanwhile. */
function throwFailure(error: unknown): never {
  if (error instanceof EngineUnavailable || error instanceof SqlTimeout || !(error instanceof Error)) {
    throwApiError(error)
  }
  throw new ApiError('service_unavailable.project_database', { detail: error.message, cause: error })
}

/** Runs each requested lint once. A lint that cannot be checked is reported and does not fail the others. */
export async function runAdvisors(ctx: Ctx, project: ProjectAccess, requested: readonly RequestableLint[]) {
  const lints = Array.from(new Set(requested))
  const facts = await readFacts(ctx, project)
  const unavailable = lints.flatMap((lint) => {
    const reason = reasonUncheckable(lint)
    return reason ? [checkUnavailable(lint, reason)] : []
  })
  const findings = await runInDatabase(ctx, project, { lints, apiSchemas: facts.apiSchemas })
  const reported = toLints([...findings, ...checkSettings(lints, facts), ...unavailable])
  return { data: { type: 'project_advisors' as const, attributes: { lints: reported } } }
}

interface DatabaseRequest {
  lints: readonly RequestableLint[]
  apiSchemas: readonly string[]
}

async function runInDatabase(
  ctx: Ctx,
  project: ProjectAccess,
  { lints, apiSchemas }: DatabaseRequest,
): Promise<Finding[]> {
  const healthLints = lints.filter(isHealthLint)
  const checks = [
    ...lints.filter(isDatabaseLint),
    ...healthLints.filter((lint) => lint === 'db_connection_limit_reached'),
  ]
  if (checks.length + healthLints.length === 0) return []
  if (!ACTIVE.includes(project.status)) return [projectNotActive(project.status)]
  return checkDatabase(ctx, project, checks, apiSchemas).catch((error) =>
    findingsFromFailure(error, Array.from(new Set([...checks, ...healthLints]))),
  )
}

const checkSettings = (lints: readonly RequestableLint[], facts: SettingFacts): Finding[] =>
  lints.filter(isSettingLint).flatMap((lint) => {
    const detail = settingChecks[lint](facts)
    const isAuthLint = lint.startsWith('auth_') || lint.startsWith('password_')
    const metadata = isAuthLint ? { type: 'auth' as const, entity: 'Auth' } : { type: 'compliance' as const }
    return detail ? [{ lint, detail, key: [], metadata }] : []
  })

function toLints(findings: readonly Finding[]) {
  const listed = Map.groupBy(findings, ({ lint }) => lint)
  return findings.map((finding) => toLint(finding, listed.get(finding.lint)?.length ?? 1))
}

/** Reads the settings that the checks need, in one round trip. */
async function readFacts({ db, engine }: Ctx, { ref, organizationId }: ProjectAccess) {
  const [auth, ssl, network, postgrest, [admins]] = await db.batch([
    selectSettings(db, ref, 'auth'),
    selectSettings(db, ref, 'ssl'),
    selectSettings(db, ref, 'network'),
    selectSettings(db, ref, 'postgrest'),
    db
      .select({ number: count() })
      .from(memberRoles)
      .innerJoin(users, eq(users.id, memberRoles.userId))
      .where(
        and(
          eq(memberRoles.organizationId, organizationId),
          inArray(memberRoles.role, ['owner', 'administrator']),
          isNull(memberRoles.projectRef),
          isNull(users.disabledAt),
        ),
      ),
  ])
  return {
    auth: toAuthConfig(parseSettingsRow('auth', auth).value),
    sslRequired: !engine.capabilities.plainConnections || parseSettingsRow('ssl', ssl).value.database,
    acceptsAnyNetwork: restrictionOf(parseSettingsRow('network', network).value) === null,
    apiSchemas: parseSettingsRow('postgrest', postgrest)
      .value.db_schema.split(',')
      .map((name) => name.trim()),
    administrators: admins?.number ?? 0,
    engine,
  }
}
