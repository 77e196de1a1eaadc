import { sql } from 'drizzle-orm'
import type { ControlDb } from '../dev/seed.ts'
import { encodeCursor } from '../src/platform/http/pagination.ts'
import { bearer, get, type Reply } from './client.ts'
import type { Environment } from './environment.ts'
import { measure, type Side } from './measure.ts'
import type { Report } from './report.ts'
import { inTurn, type SeededOrganization, seedOrganization, seedOwners, seedTokens, settleTables } from './seed.ts'

const RATIO_MAX = 1.5
const SIZES = [10, 1_000, 100_000] as const
const LOADS = [
  { concurrency: 1, rounds: 6, requestsPerBlock: 60 },
  { concurrency: 16, rounds: 6, requestsPerBlock: 160 },
]
/** Requests of each caller in the whole run, below the limit of 120 a minute for an organization. */
const REQUESTS_PER_CALLER = 100

interface Sized extends SeededOrganization {
  size: (typeof SIZES)[number]
  /** Cursor of the start of the list's second half, oldest first. */
  middle: string
}

interface List {
  name: string
  path(organization: Sized): string
  /** Rows in a reply. Only organizations with at least this many are compared, because a longer reply costs more. */
  rows: number
  bound?: number
}

const v1 = (query: (organization: Sized) => string) => (organization: Sized) =>
  `/v1/organizations/${organization.slug}/projects?${query(organization)}`
const v2 = (query: (organization: Sized) => string) => (organization: Sized) =>
  `/v2/organizations/${organization.slug}/projects?${query(organization)}`

const LISTS: readonly List[] = [
  { name: 'v1 by name, 10 rows', path: v1(() => 'limit=10'), rows: 10, bound: RATIO_MAX },
  { name: 'v2 first page, 10 rows', path: v2(() => 'page[size]=10'), rows: 10, bound: RATIO_MAX },
  {
    name: 'v2 page in the middle, 5 rows',
    path: v2(({ middle }) => `page[size]=5&page[after]=${middle}`),
    rows: 5,
    bound: RATIO_MAX,
  },
  { name: 'v1 by name, 20 rows', path: v1(() => 'limit=20'), rows: 20, bound: RATIO_MAX },
  { name: 'v1 default: by name, 100 rows', path: v1(() => ''), rows: 100, bound: RATIO_MAX },
  { name: 'v2 default: first page, 20 rows', path: v2(() => ''), rows: 20, bound: RATIO_MAX },
  {
    name: 'v2 page in the middle, 20 rows',
    path: v2(({ middle }) => `page[after]=${middle}`),
    rows: 20,
    bound: RATIO_MAX,
  },
  { name: 'v1 offset in the middle, 5 rows', path: v1(({ size }) => `limit=5&offset=${size / 2}`), rows: 5 },
  { name: 'v1 search for one name', path: v1(() => 'search=000007'), rows: 1 },
  { name: 'v1 search for all, 10 rows', path: v1(() => 'search=project&limit=10'), rows: 10 },
  { name: 'v2 search for one name', path: v2(() => 'search=000007'), rows: 1 },
  { name: 'v2 search for all, 10 rows', path: v2(() => 'search=project&page[size]=10'), rows: 10 },
]
const REQUESTS =
  LISTS.length * LOADS.reduce((sum, { rounds, requestsPerBlock }) => sum + (rounds + 1) * requestsPerBlock, 0)

/** Compares the cost of a page in an organization with ten projects and with a hundred thousand. */
export async function lists({ port, control }: Environment, report: Report): Promise<void> {
  const organizations: Sized[] = []
  for (const size of SIZES) {
    const organization = await seedOrganization(control, `lists-${size}`, size)
    organizations.push({ ...organization, size, middle: await findMiddle(control, organization, size) })
  }
  const userIds = await seedOwners(control, organizations, Math.ceil(REQUESTS / REQUESTS_PER_CALLER))
  const nextToken = inTurn(await seedTokens(control, userIds, userIds.length))
  await settleTables(control)

  const side = ({ path, rows }: List, organization: Sized) =>
    ({
      name: `${organization.size.toLocaleString('en')} projects`,
      next: () => get(path(organization), bearer(nextToken())),
      accepts: (reply: Reply) => reply.status === 200 && rowsOf(reply) === rows,
    }) satisfies Side

  for (const { concurrency, ...load } of LOADS) {
    for (const list of LISTS) {
      const comparable = organizations.filter(({ size }) => size >= list.rows)
      const figures = await measure(
        { port, concurrency, ...load },
        comparable.map((each) => side(list, each)),
      )
      report.title(`${list.name}, concurrency ${concurrency}`)
      report.table(figures)
      const [smallest, ...larger] = Object.entries(figures)
      for (const [name, of] of larger) {
        if (smallest) report.ratio({ name: `${name} / ${smallest[0]}`, of, to: smallest[1], bound: list.bound })
      }
    }
  }
}

const rowsOf = ({ body }: Reply): number => {
  const { projects, data } = JSON.parse(body)
  return (projects ?? data).length
}

async function findMiddle(control: ControlDb, { id }: SeededOrganization, size: number): Promise<string> {
  const { rows } = await control.execute<{ ref: string; ms: string }>(sql`
    select ref, extract(epoch from created_at) * 1000 as ms from projects where organization_id = ${id}
    order by created_at, ref limit 1 offset ${size / 2 - 1}`)
  const [row] = rows
  if (!row) throw new Error('no project in the middle')
  return encodeCursor(new Date(Number(row.ms)), row.ref)
}
