import { spawnSync } from 'node:child_process'
import * as z from 'zod'
import { StartError } from './start-error.ts'

/** The queues of a configuration file of wrangler. */
export const QueueConfig = z.object({
  producers: z.array(z.object({ queue: z.string() })).optional(),
  consumers: z.array(z.object({ queue: z.string(), dead_letter_queue: z.string().optional() })).optional(),
})

/** A queue or bucket that a deployment needs, and the arguments by which wrangler creates it. */
export type Resource = { title: string; create: readonly string[] } & (
  | { queue: string }
  /** The arguments by which wrangler finds a bucket. */
  | { find: readonly string[] }
)

/** The queues that a configuration file names, and the bucket if it is in R2. */
export function neededResources(queues: z.output<typeof QueueConfig>, vars: Record<string, unknown>): Resource[] {
  const consumers = queues.consumers ?? []
  const names = [...(queues.producers ?? []), ...consumers].map(({ queue }) => queue)
  const dead = consumers.flatMap(({ dead_letter_queue: queue }) => queue ?? [])
  return [...[...new Set([...names, ...dead])].sort().map(queueNamed), ...bucketOf(vars)]
}

const queueNamed = (name: string): Resource => ({
  title: `queue ${name}`,
  queue: name,
  create: ['queues', 'create', name],
})

const R2_HOST = /^[0-9a-f]{32}(?:\.(eu|fedramp))?\.r2\.cloudflarestorage\.com$/

function bucketOf({ S3_ENDPOINT, S3_BUCKET }: Record<string, unknown>): Resource[] {
  const match = URL.canParse(String(S3_ENDPOINT)) && R2_HOST.exec(new URL(String(S3_ENDPOINT)).hostname)
  if (!match) return []
  const [, jurisdiction] = match
  const place = jurisdiction ? ['--jurisdiction', jurisdiction] : []
  const named = (verb: string) => ['r2', 'bucket', verb, String(S3_BUCKET), ...place]
  return [{ title: `bucket ${S3_BUCKET}`, find: named('info'), create: named('create') }]
}

const ABSENT = /does not exist/i

/** The resources that do not exist yet. */
export function missingResources(resources: readonly Resource[]): Resource[] {
  const queues = existingQueues(resources.flatMap((resource) => ('queue' in resource ? resource.queue : [])))
  return resources.filter((resource) => ('queue' in resource ? !queues.has(resource.queue) : isMissing(resource)))
}

/** Lists queues until it has seen all these names or every page: a run of wrangler for each name would take seconds. */
function existingQueues(names: readonly string[]): ReadonlySet<string> {
  const found = new Set<string>()
  for (let page = 1; names.some((name) => !found.has(name)); page++) {
    const { status, output, stdout } = wrangler(['queues', 'list', '--page', String(page)])
    if (status !== 0) throw new StartError(`Cannot list the queues:\n${output}`)
    const known = found.size
    for (const name of secondColumn(stdout)) found.add(name)
    if (found.size === known) break
  }
  return found
}

/** Values in the second column of a table of wrangler, without its heading. */
const secondColumn = (table: string): string[] =>
  Array.from(table.matchAll(/^│[^│]*│ *([^│\s]+) *│/gm), ([, value = '']) => value).slice(1)

function isMissing({ title, find }: { title: string; find: readonly string[] }): boolean {
  const { status, output } = wrangler(find)
  if (status !== 0 && !ABSENT.test(output)) throw new StartError(`Cannot look up the ${title}:\n${output}`)
  return status !== 0
}

export function createResource({ title, create }: Resource): void {
  const { status, output } = wrangler(create)
  if (status !== 0) throw new StartError(`Cannot create the ${title}:\n${output}`)
}

/** Runs wrangler without a terminal, so that it does not prompt. */
export function wrangler(args: readonly string[]): { status: number | null; output: string; stdout: string } {
  const env = { ...process.env, CI: '1', NO_COLOR: '1' }
  const result = spawnSync('wrangler', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], env })
  if (result.error) throw new StartError(`wrangler does not start: ${result.error.message}`)
  return { status: result.status, output: result.stdout + result.stderr, stdout: result.stdout }
}
