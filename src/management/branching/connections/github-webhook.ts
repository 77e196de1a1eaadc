import { sql } from 'drizzle-orm'
import type { Context, Hono } from 'hono'
import * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import { branches, gitBranches, gitConnections, gitDeliveries, projects } from '../../../model/tables/index.ts'
import { MemoryExhausted, reserveMemory } from '../../../platform/blobs/memory-budget.ts'
import { readParts } from '../../../platform/blobs/part-reader.ts'
import { rowsOf } from '../../../platform/db/client.ts'
import { githubAppOf } from '../../../platform/github/app.ts'
import { Text } from '../../../platform/http/common-values.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { send } from '../../../platform/queue/send.ts'
import { addressIn, isAddressOverLimit } from '../../../platform/rate-limit/quota.ts'
import { withTimeout } from '../../../platform/timeout.ts'
import type { AppEnv } from '../../kernel/app-env.ts'
import { bodyTimeout } from '../../kernel/body.ts'
import { requireValid } from '../../kernel/mount.ts'
import { limitInvalidToken } from '../../kernel/rate-limits.ts'

const PATH = '/integrations/github/webhook'

/** Maximum size of a delivery. GitHub sends up to 25 MB for thousands of commits, but their pull requests come in smaller deliveries. */
const BODY_BYTES_MAX = 5 * 1024 ** 2
/** Number of copies of a body in memory: the received bytes, the decoded text and the parsed value. */
const COPIES = 3
/** Time limit for a body, which is that of GitHub itself. */
const BODY_SECONDS_MAX = 10

/** Mounts the webhook of the GitHub App. Signed deliveries have no quota, as they all come from a few addresses. */
export function mountGithubWebhook(app: Hono<AppEnv>): void {
  app.post(PATH, async (c) => {
    const { ctx } = c.var
    c.var.facts.route = 'github-webhook'
    const github = githubAppOf(ctx.config)
    if (!github) throw new ApiError('not_found.github_app')
    if (isAddressOverLimit(addressIn(ctx, c.req.raw.headers), ctx.now().getTime())) await limitInvalidToken(c)
    const header = (name: string) => c.req.header(name) ?? ''
    const given = { 'x-github-event': header('x-github-event'), 'x-github-delivery': header('x-github-delivery') }
    const { 'x-github-event': event, 'x-github-delivery': delivery } = requireValid('header', Headers.safeParse(given))
    const signature = SIGNATURE.exec(header('x-hub-signature-256'))?.[1]
    const body = signature === undefined ? undefined : await readBody(c)
    const isAuthentic = signature && body && (await isSigned(github.webhookSecret, signature, body))
    if (!isAuthentic) {
      // Guesses at signatures share the quota of guesses at tokens.
      await limitInvalidToken(c)
      c.header('www-authenticate', 'X-Hub-Signature-256')
      throw new ApiError('unauthorized', { detail: 'x-hub-signature-256 does not match the body' })
    }
    return c.json({ message: await acceptDelivery(ctx, { event, delivery, body }) }, 202)
  })
}

const SIGNATURE = /^sha256=([0-9a-f]{64})$/

const Headers = z.object({ 'x-github-event': z.string().min(1).max(100), 'x-github-delivery': z.uuid() })

async function readBody({ req, var: { ctx } }: Context<AppEnv>): Promise<Uint8Array<ArrayBuffer>> {
  const request = req.raw
  const type = request.headers.get('content-type') ?? ''
  if (!/^application\/json\s*(;|$)/i.test(type)) {
    throw new ApiError('unsupported_media_type', { detail: 'send application/json' })
  }
  const declared = Number(request.headers.get('content-length') ?? BODY_BYTES_MAX)
  const tooLarge = new ApiError('payload_too_large', { detail: `at most ${BODY_BYTES_MAX} bytes` })
  if (!(declared <= BODY_BYTES_MAX)) throw tooLarge
  if (!request.body) return new Uint8Array()
  const memory = await reserveMemory(COPIES * declared, 'github').catch((cause) => {
    throw cause instanceof MemoryExhausted ? new ApiError('service_unavailable.memory', { cause }) : cause
  })
  const parts = readParts(request.body)
  const seconds = Math.min(ctx.config.BODY_TIMEOUT_SECONDS, BODY_SECONDS_MAX)
  try {
    const bytes = await withTimeout(seconds * 1_000, parts.next(BODY_BYTES_MAX + 1), () => bodyTimeout(seconds))
    if (bytes.length > BODY_BYTES_MAX) throw tooLarge
    return bytes
  } catch (cause) {
    void parts.cancel('refused').catch(() => {})
    throw cause instanceof ApiError
      ? cause
      : new ApiError('bad_request.malformed_body', { detail: 'it ended before it was complete', cause })
  } finally {
    memory.release()
  }
}

/** Verifies the signature; WebCrypto compares in constant time. */
async function isSigned(secret: string, signature: string, body: Uint8Array<ArrayBuffer>): Promise<boolean> {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  const key = await crypto.subtle.importKey('raw', new TextEncoder().encode(secret), algorithm, false, ['verify'])
  return crypto.subtle.verify('HMAC', key, Buffer.from(signature, 'hex'), body)
}

const place = {
  repository: z.object({ id: z.int(), default_branch: Text.max(1_024) }),
  installation: z.object({ id: z.int() }),
}
const GitName = Text.min(1).max(1_024)
const Push = z.object({ ref: GitName, ...place })
const PullRequest = z.object({
  action: z.string(),
  number: z.int32(),
  pull_request: z.object({ head: z.object({ ref: GitName, repo: z.object({ id: z.int() }).nullable() }) }),
  ...place,
})
const ACTIONS = ['opened', 'reopened', 'synchronize', 'closed']

interface Delivery {
  event: string
  delivery: string
  body: Uint8Array<ArrayBuffer>
}

/** The branch that a delivery is about, in any project. */
interface Hint {
  branch: string
  /** Null for a push. */
  pullRequest: number | null
  repository: { id: number; default_branch: string }
  installation: { id: number }
}

async function acceptDelivery(ctx: SystemCtx, { event, delivery, body }: Delivery): Promise<string> {
  const hint = readHint(event, body)
  if (typeof hint === 'string') return hint
  const ids = await markDue(ctx, delivery, hint)
  if (ids === undefined) return 'already received'
  // The sweeper sends the messages that the queue refuses.
  await send(
    ctx,
    ids.map((id) => ({ type: 'git-branch' as const, id })),
  )
  return ids.length === 0 ? 'no project is connected to this branch' : 'accepted'
}

/** Reads the branch from a delivery. Returns a text if the delivery is ignored. */
function readHint(event: string, body: Uint8Array<ArrayBuffer>): Hint | string {
  if (event === 'ping') return 'pong'
  if (event === 'push') {
    const { ref, repository, installation } = payloadOf(Push, body)
    const branch = /^refs\/heads\/(.+)$/.exec(ref)?.[1]
    if (branch === undefined) return 'ignored: not a branch'
    return { branch, pullRequest: null, repository, installation }
  }
  if (event !== 'pull_request') return `ignored: ${event}`
  const { action, number, pull_request: pull, repository, installation } = payloadOf(PullRequest, body)
  if (!ACTIONS.includes(action)) return `ignored: ${action}`
  if (pull.head.repo?.id !== repository.id) return 'ignored: from a fork'
  return { branch: pull.head.ref, pullRequest: number, repository, installation }
}

const payloadOf = <S extends z.ZodType>(schema: S, body: Uint8Array<ArrayBuffer>): z.output<S> =>
  requireValid('body', schema.safeParse(parse(body)))

function parse(body: Uint8Array<ArrayBuffer>): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(body))
  } catch (cause) {
    throw new ApiError('bad_request.malformed_json', { cause })
  }
}

/**
 * Marks the branch as due in each project connected to its repository through the same GitHub installation. A single statement
 * handles each delivery exactly once. Returns undefined for a repeated delivery.
 */
async function markDue(ctx: SystemCtx, delivery: string, hint: Hint): Promise<string[] | undefined> {
  const { branch, pullRequest, repository, installation } = hint
  const at = ctx.now().toISOString()
  const ofBranch = sql`exists (select from ${branches} b
    where b.parent_ref = c.project_ref and b.removed_at is null and b.git_branch = ${branch})`
  const ofMain = sql`${branch} = coalesce((select b.git_branch from ${branches} b
    where b.parent_ref = c.project_ref and b.removed_at is null and b.is_default), ${repository.default_branch})`
  const isRelevant = pullRequest === null ? sql`(${ofBranch} or ${ofMain})` : sql`(c.new_branch_per_pr or ${ofBranch})`
  const [noted] = await rowsOf<{ taken: number; ids: string[] | null }>(
    ctx.db,
    sql`with taken as (
        insert into ${gitDeliveries} (id, at) values (${delivery}, ${at}) on conflict do nothing returning id
      ), noted as (
        insert into ${gitBranches} as known (connection_id, name, due_at, asked, pull_request, updated_at)
        select c.id, ${branch}, ${at}::timestamptz, 1, ${pullRequest}::int, ${at}::timestamptz
        from ${gitConnections} c join ${projects} p on p.ref = c.project_ref and p.removed_at is null
        where c.repository_id = ${repository.id} and c.installation_id = ${installation.id}
          and exists (select from taken) and ${isRelevant}
        on conflict (connection_id, name) do update set
          due_at = least(known.due_at, excluded.due_at), asked = known.asked + 1, attempts = 0,
          pull_request = coalesce(excluded.pull_request, known.pull_request), updated_at = excluded.updated_at
        returning id
      )
      select (select count(*)::int from taken) as taken, (select json_agg(id) from noted) as ids`,
  )
  if (!noted || noted.taken === 0) return undefined
  return noted.ids ?? []
}
