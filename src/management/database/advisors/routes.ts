import { get, post } from '../../kernel/route.ts'
import { FINDINGS_MAX } from './checks/statement.ts'
import { AdvisorsReply, Lints, RunAdvisors, SecurityQuery } from './schema.ts'
import { getPerformanceAdvisors, getSecurityAdvisors, runAdvisors } from './service.ts'

const ERRORS = ['bad_request.sql_timeout', 'conflict.project_status', 'service_unavailable.project_database'] as const
const BOUND = `At most ${FINDINGS_MAX} findings per lint are listed; beyond that, the description gives the total.`

export const advisorRoutes = [
  get('/v1/projects/{ref}/advisors/performance', {
    id: 'v1-get-performance-advisors',
    stability: 'Experimental',
    summary: 'List performance advisories',
    description: BOUND,
    deprecated: true,
    scope: 'database:read',
    returns: Lints,
    errors: ERRORS,
    handle: ({ ctx, project }) => getPerformanceAdvisors(ctx, project),
  }),

  get('/v1/projects/{ref}/advisors/security', {
    id: 'v1-get-security-advisors',
    stability: 'Experimental',
    summary: 'List security advisories',
    description: BOUND,
    deprecated: true,
    scope: 'database:read',
    query: SecurityQuery,
    returns: Lints,
    errors: ERRORS,
    handle: ({ ctx, project, query }) => getSecurityAdvisors(ctx, project, query.lint_type),
  }),

  post('/v2/projects/{ref}/advisors/run', {
    id: 'v2-run-project-advisors',
    summary: 'Run selected advisor checks',
    description: `A lint that cannot be checked is reported as \`advisor_check_unavailable\` with the reason. ${BOUND}`,
    scope: 'any caller',
    permission: 'database:read',
    body: RunAdvisors,
    returns: AdvisorsReply,
    handle: ({ ctx, project, body }) =>
      runAdvisors(
        ctx,
        project,
        body.data.attributes.lints.map(({ name }) => name),
      ),
  }),
]
