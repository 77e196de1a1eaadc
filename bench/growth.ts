import { sql } from 'drizzle-orm'
import { withClient } from '../dev/control-database.ts'
import type { ControlDb } from '../dev/seed.ts'
import { bearer, get, type Reply } from './client.ts'
import type { Environment } from './environment.ts'
import { type Figures, measure } from './measure.ts'
import { createProject, ownerUrl, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { inTurn, seedOrganization, seedOwners, seedTokens, settleTables } from './seed.ts'

const RATIO_MAX = 1.5
const SIZES = [10, 1_000, 100_000] as const
/** Requests of each caller in the whole run, below the limit of 120 a minute for a project. */
const REQUESTS_PER_CALLER = 100
const PAGES = { concurrency: 1, rounds: 6, requestsPerBlock: 60 }
const WHOLE = { concurrency: 1, rounds: 2, requestsPerBlock: 3 }

interface Sized {
  size: (typeof SIZES)[number]
  ref: string
}

interface Query {
  name: string
  path(sized: Sized): string
  /** Limit for the ratio; undefined if the reply grows with the number of rows. */
  bound?: number
}

const project = (path: (sized: Sized) => string) => (sized: Sized) => `/v1/projects/${sized.ref}/${path(sized)}`
const middle = ({ size }: Sized) => size / 2

const QUERIES: readonly Query[] = [
  { name: 'a branch by name', path: project((of) => `branches/branch-${middle(of)}`), bound: RATIO_MAX },
  { name: 'runs, the first 10', path: project(() => 'actions?limit=10'), bound: RATIO_MAX },
  {
    name: 'a migration by version',
    path: project((of) => `database/migrations/${versionOf(middle(of))}`),
    bound: RATIO_MAX,
  },
  { name: 'runs, 10 in the middle', path: project((of) => `actions?limit=10&offset=${middle(of) - 5}`) },
]
/** Lists for which the specification has no pagination. */
const LISTS: readonly Query[] = [
  { name: 'all branches', path: project(() => 'branches') },
  { name: 'all migrations', path: project(() => 'database/migrations') },
]

const requestsOf = (queries: number, { rounds, requestsPerBlock }: typeof PAGES) =>
  queries * (rounds + 1) * requestsPerBlock

/** Compares queries for branches, runs and migrations with ten rows and with a hundred thousand. */
export async function growth(environment: Environment, report: Report): Promise<void> {
  const { port, control, gatewayPort } = environment
  const organization = await seedOrganization(control, 'growth', 0)
  const requests = requestsOf(QUERIES.length, PAGES) + requestsOf(LISTS.length, WHOLE)
  const userIds = await seedOwners(control, [organization], Math.ceil(requests / REQUESTS_PER_CALLER) + SIZES.length)
  const tokens = await seedTokens(control, userIds, userIds.length)
  const places: Sized[] = []
  for (const [n, size] of SIZES.entries()) {
    const fields = { name: `growth-${size}`, organization_slug: organization.slug, db_pass: PASSWORD }
    const ref = await createProject(port, tokens[n] ?? '', fields)
    await seedBranches(control, ref, size)
    await seedMigrations(ownerUrl(gatewayPort, ref), size)
    places.push({ size, ref })
  }
  await settleTables(control)
  await control.execute(sql`vacuum analyze branches, action_runs`)
  const nextToken = inTurn(tokens)

  const sides = ({ path }: Query) =>
    places.map((place) => ({
      name: place.size.toLocaleString('en'),
      next: () => get(path(place), bearer(nextToken())),
      accepts: ({ status }: Reply) => status === 200,
    }))
  for (const [queries, plan] of [
    [QUERIES, PAGES],
    [LISTS, WHOLE],
  ] as const) {
    for (const query of queries) {
      const figures = await measure({ port, ...plan }, sides(query))
      report.title(`${query.name}, by number of rows`)
      report.table(figures)
      compare(report, figures, query.bound)
    }
  }
}

function compare(report: Report, figures: Record<string, Figures>, bound: number | undefined): void {
  const [smallest, ...larger] = Object.entries(figures)
  for (const [name, of] of larger) {
    if (smallest) report.ratio({ name: `${name} / ${smallest[0]}`, of, to: smallest[1], bound })
  }
}

/** Inserts only rows, each branch with a run: the queries do not use the databases of the branches. */
async function seedBranches(control: ControlDb, parent: string, count: number): Promise<void> {
  await control.execute(sql`
    with made as (
      insert into projects (ref, parent_ref, organization_id, name, region, instance_size, status, postgres_version,
        sealed_password, sealed_runner_password)
      select translate(substr(md5(${parent} || n), 1, 14) || lpad(n::text, 6, '0'), '0123456789', 'ghijklmnop'), ref,
        organization_id, 'branch-' || n, region, instance_size, 'ACTIVE_HEALTHY', postgres_version, repeat('x', 88), repeat('x', 120)
      from projects, generate_series(1, ${count}::int) n where ref = ${parent}
      returning ref, name
    ), branched as (
      insert into branches (project_ref, parent_ref, name, is_default, persistent, with_data, status)
      select ref, ${parent}, name, false, false, false, 'FUNCTIONS_DEPLOYED' from made
      returning id, project_ref
    )
    insert into action_runs (branch_id, project_ref, parent_ref, kind, steps, created_at)
    select id, project_ref, ${parent}, 'create', '[{"name": "clone", "status": "EXITED", "created_at": "2026-01-01T00:00:00Z",
      "updated_at": "2026-01-01T00:00:00Z"}]', timestamptz '2026-01-01' + row_number() over () * interval '1 minute'
    from branched`)
}

const versionOf = (n: number) => String(20_200_000_000_000 + n)

async function seedMigrations(owner: URL, count: number): Promise<void> {
  await withClient(owner.href, async (client) => {
    await client.query(
      `insert into supabase_migrations.schema_migrations (version, name, statements)
         select (20200000000000 + n)::text, 'migration ' || n, array['select ' || n] from generate_series(1, $1::int) n`,
      [count],
    )
    await client.query('vacuum analyze supabase_migrations.schema_migrations')
  })
}
