import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, expect, it } from 'vitest'

/**
 * The rooms of `src`, and the rooms that each may import. Files in `src` itself are rooms of their own. docs/architecture.md says
 * why. If a test here fails, move the code; do not widen the table or the lists of exceptions.
 */
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  'config.ts': [],
  platform: ['config.ts'],
  model: ['config.ts', 'platform'],
  'actor.ts': ['model'],
  engine: ['config.ts', 'platform', 'model'],
  'ctx.ts': ['config.ts', 'platform', 'engine', 'actor.ts'],
  access: ['config.ts', 'platform', 'model', 'actor.ts', 'ctx.ts'],
  outbound: ['config.ts', 'platform', 'model', 'ctx.ts'],
  builder: ['platform'],
  services: ['config.ts', 'platform', 'model', 'actor.ts', 'engine', 'ctx.ts', 'outbound', 'builder'],
  management: ['config.ts', 'platform', 'model', 'actor.ts', 'engine', 'ctx.ts', 'access', 'outbound', 'services'],
}
/** Entry points compose the rooms and may import all of them. */
const ENTRY_POINTS = ['index.ts', 'app.ts', 'api.ts', 'background']

/** Areas of the management API that depend on each other, directly or through others. This number may only become smaller. */
const AREAS_IN_CYCLES_MAX = 18

const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))

/** The files of `src` that each file imports, types included. */
const imports = new Map(
  files.map((file) => {
    const specifiers = readFileSync(join('src', file), 'utf8').matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)
    const targets = Array.from(specifiers, ([, path = '']) => normalize(join(dirname(file), path)))
    return [file, targets.filter((path) => !path.startsWith('..'))] as const
  }),
)

const roomOf = (file: string): string => file.split('/')[0] ?? ''

/** Returns the groups of names that reach each other, each sorted (Tarjan's algorithm). */
function cyclesIn(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const index = new Map<string, number>()
  const low = new Map<string, number>()
  const stack: string[] = []
  const cycles: string[][] = []
  function visit(name: string): number {
    index.set(name, index.size)
    let lowest = index.get(name) ?? 0
    low.set(name, lowest)
    stack.push(name)
    for (const next of graph.get(name) ?? []) {
      if (!index.has(next)) lowest = Math.min(lowest, visit(next))
      else if (stack.includes(next)) lowest = Math.min(lowest, index.get(next) ?? lowest)
    }
    low.set(name, lowest)
    if (lowest === index.get(name)) {
      const group = stack.splice(stack.indexOf(name))
      if (group.length > 1) cycles.push(group.sort())
    }
    return lowest
  }
  for (const name of graph.keys()) if (!index.has(name)) visit(name)
  return cycles
}

describe('the imports of src', () => {
  it('lead only to allowed rooms', () => {
    const breaches = [...imports].flatMap(([file, targets]) => {
      const room = roomOf(file)
      if (ENTRY_POINTS.includes(room)) return []
      const allowed = ROOMS[room]
      if (!allowed) return [`${room} is not a room`]
      return targets
        .filter((target) => roomOf(target) !== room && !allowed.includes(roomOf(target)))
        .map((target) => `${file} imports ${target}`)
    })
    expect(breaches).toEqual([])
  })

  it('form no cycle between rooms', () => {
    const rooms = Object.keys(ROOMS)
    const isBelow = (room: string, other: string) => rooms.indexOf(room) < rooms.indexOf(other)
    const upward = rooms.flatMap((room) => (ROOMS[room] ?? []).filter((other) => !isBelow(other, room)))
    expect(upward).toEqual([])
  })

  it('form no cycle between files', () => {
    expect(cyclesIn(imports)).toEqual([])
  })

  it('add no further cycle between areas of the management API', () => {
    const areaOf = (file: string): string => file.split('/').slice(1, 3).join('/')
    const areas = new Map<string, string[]>()
    for (const [file, targets] of imports) {
      if (!file.startsWith('management/')) continue
      const others = targets.filter((target) => target.startsWith('management/')).map(areaOf)
      areas.set(areaOf(file), [...(areas.get(areaOf(file)) ?? []), ...others.filter((area) => area !== areaOf(file))])
    }
    const tied = cyclesIn(areas).flat().length
    expect(tied).toBeLessThanOrEqual(AREAS_IN_CYCLES_MAX)
  })
})

/** The area or room that writes each table. Others ask its functions; the model deletes the rows of removed projects. */
const OWNERS: Readonly<Record<string, readonly string[]>> = {
  'management/account/members': ['invitations', 'memberRoles'],
  'management/account/oauth': [
    ...['accessTokens', 'assertionIssuers', 'oauthApps', 'oauthGrants', 'oauthSigningKeys', 'usedAssertions'],
  ],
  'management/account/organizations': ['organizations'],
  'management/branching/branches': ['actionRunLogs', 'actionRuns', 'branches'],
  'management/branching/connections': ['gitBranches', 'gitConnections', 'gitDeliveries'],
  'management/database/backups': ['backups'],
  'management/database/database-access': ['jitGrants', 'temporaryLogins'],
  'management/database/notebooks': ['notebookFavorites', 'notebooks'],
  'management/database/private-link': ['privateLinkAssociations'],
  'management/database/snippets': ['snippetFavorites', 'snippets'],
  'management/keys/api-keys': ['apiKeys'],
  'management/keys/signing-keys': ['signingKeys'],
  'management/observability/analytics': ['postgresLogCursors', 'postgresLogs'],
  'management/observability/log-drains': ['logDrains'],
  'management/programs/functions': ['functionDeletions', 'functionDeployments', 'functions'],
  'management/programs/secrets': ['functionSecrets'],
  'management/programs/workers': ['workerTasks', 'workerUploads', 'workers'],
  'management/projects/claims': ['projectClaimTokens'],
  'management/projects/projects': ['projectTasks', 'projects'],
  'management/projects/settings': ['projectSettings'],
  'management/service-config/domains': ['customHostnames', 'releasedSubdomains', 'vanitySubdomains'],
  'management/service-config/sso': ['ssoDomains', 'ssoProviders'],
  'management/service-config/third-party-auth': ['thirdPartyAuths'],
  // Areas request what leaves the installation; outbound sends it.
  outbound: ['logDrainEntries', 'webhookDeliveries', 'webhookEndpoints', 'webhookEvents'],
  services: ['dataApiRequests', 'invocations', 'requestCounts', 'storageRequests', 'workerImages'],
  model: ['heartbeats'],
  engine: ['hosts'],
  'management/kernel': ['auditLog'],
}

/** Files that write a table of another area. Remove a line as soon as its write is gone; add none. */
const FOREIGN_WRITES: readonly string[] = [
  'background/duties.ts writes heartbeats',
  'engine/driver-states.ts writes projects',
  'management/account/organizations/service.ts writes memberRoles',
  'management/branching/actions/service.ts writes actionRuns',
  'management/branching/branches/commit-files.ts writes gitBranches',
  'management/branching/branches/notify-url.ts writes webhookEndpoints',
  'management/branching/connections/start-preview.ts writes branches',
  'management/branching/connections/sync-git-branch.ts writes branches',
  'management/database/backups/backup-schedule.ts writes projectSettings',
  'management/observability/webhooks/deliveries.ts writes webhookDeliveries',
  'management/observability/webhooks/deliveries.ts writes webhookEvents',
  'management/observability/webhooks/endpoints.ts writes webhookEndpoints',
  'management/programs/secrets/service.ts writes projects',
  'management/projects/projects/jobs.ts writes logDrains',
  'management/projects/settings/read-settings.ts writes projects',
  'management/projects/transfers/transfer-move.ts writes projects',
  'management/projects/transfers/transfer-move.ts writes snippets',
  'management/projects/transfers/transfer-move.ts writes webhookEndpoints',
  'management/projects/upgrades/jobs.ts writes backups',
  'outbound/drains/store.ts writes logDrains',
  'outbound/drains/sweep.ts writes logDrains',
  'outbound/webhooks/delivery-store.ts writes auditLog',
  'services/storage/sweep-bytes.ts writes projects',
  'services/storage/sweep-schedule.ts writes projects',
  'services/workers/remove-workers.ts writes workers',
]

describe('the tables of the control database', () => {
  it('are written only by their owner', () => {
    const ownerOf = new Map(Object.entries(OWNERS).flatMap(([owner, tables]) => tables.map((table) => [table, owner])))
    const found = files.flatMap((file) => {
      if (file.startsWith('model/')) return []
      const writes = readFileSync(join('src', file), 'utf8').matchAll(
        /\b(?:insert|update|delete)\(\s*(\w+)\s*\)|(?:insert into|update|delete from) \$\{(\w+)\}/g,
      )
      const tables = Array.from(writes, ([, built, raw]) => built ?? raw ?? '')
      return Array.from(new Set(tables.filter((table) => ownerOf.has(table))))
        .filter((table) => !file.startsWith(`${ownerOf.get(table)}/`))
        .map((table) => `${file} writes ${table}`)
    })
    expect(found.sort()).toEqual([...FOREIGN_WRITES].sort())
  })
})
