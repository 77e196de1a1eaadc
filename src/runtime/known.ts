import { sql } from 'drizzle-orm'
import { rowsOf } from '../db/client.ts'
import type { FUNCTION_STATUSES, ProjectStatus } from '../db/schema/index.ts'
import type { SystemCtx } from '../env.ts'

/** A function as whoever calls it meets it. */
export interface KnownFunction {
  ref: string
  slug: string
  projectStatus: ProjectStatus
  secretsGeneration: number
  sealedJwtSecret: string | null
  sealedPassword: string
  /** Undefined where the project has none of that name. */
  deployed: {
    id: string
    status: (typeof FUNCTION_STATUSES)[number]
    version: number
    verifyJwt: boolean
    deploymentId: string
  } | null
}

/** So long may an isolate that saw a function go by what it was. */
const KEPT_MS = 1_000
/** Older ones that are in use are read again together, before anybody has to wait. */
const RENEWED_MS = 500
const RENEWAL_MS_MAX = 10_000
const KEPT_MAX = 20_000

interface Kept {
  known: KnownFunction
  /** When it was read, and when last asked for. */
  at: number
  usedAt: number
}

const kept = new Map<string, Map<string, Kept>>()
let size = 0
let renewingSince = 0
/** Counts what was forgotten: a read that began before says nothing any more. */
let changes = 0

type Reader = Pick<SystemCtx, 'db' | 'waitUntil'>

/** Undefined where there is no such project. One statement for all functions in use, twice a second at most. */
export async function openFunction(
  createReader: () => Reader,
  ref: string,
  slug: string,
): Promise<KnownFunction | undefined> {
  const now = Date.now()
  const found = kept.get(ref)?.get(slug)
  if (!found || now - found.at >= KEPT_MS || now < found.at) return openAnew(createReader(), ref, slug)
  found.usedAt = now
  if (now - found.at >= RENEWED_MS && now - renewingSince > RENEWAL_MS_MAX) {
    renewingSince = now
    const reader = createReader()
    reader.waitUntil(renew(reader, now))
  }
  return found.known
}

/** For who has changed a project's functions or their secrets: this isolate goes by the change at once. */
export function forgetFunction(ref: string): void {
  changes += 1
  size -= kept.get(ref)?.size ?? 0
  kept.delete(ref)
}

async function openAnew(reader: Reader, ref: string, slug: string): Promise<KnownFunction | undefined> {
  const at = Date.now()
  const before = changes
  const [known] = await read(reader, [{ ref, slug }])
  if (known && changes === before) keep({ known, at, usedAt: at })
  return known
}

function keep(entry: Kept): void {
  const { ref, slug } = entry.known
  if (size >= KEPT_MAX) {
    kept.clear()
    size = 0
  }
  const ofProject = kept.get(ref) ?? new Map<string, Kept>()
  if (!ofProject.has(slug)) size += 1
  kept.set(ref, ofProject.set(slug, entry))
}

async function renew(reader: Reader, at: number): Promise<void> {
  try {
    const before = changes
    const inUse = dropUnused(at)
    const known = await read(reader, inUse)
    if (changes !== before) return
    const read_ = new Map(known.map((one) => [`${one.ref}/${one.slug}`, one]))
    for (const { ref, slug } of inUse) {
      const one = read_.get(`${ref}/${slug}`)
      const entry = kept.get(ref)?.get(slug)
      if (one && entry) keep({ known: one, at, usedAt: entry.usedAt })
      else if (entry) drop(ref, slug)
    }
  } catch {
    // Whoever needs one that has grown too old reads it and is told of the failure.
  } finally {
    renewingSince = 0
  }
}

function dropUnused(now: number): { ref: string; slug: string }[] {
  const inUse: { ref: string; slug: string }[] = []
  for (const [ref, ofProject] of kept) {
    for (const [slug, { usedAt }] of ofProject) {
      if (now - usedAt < KEPT_MS) inUse.push({ ref, slug })
      else drop(ref, slug)
    }
  }
  return inUse
}

function drop(ref: string, slug: string): void {
  const ofProject = kept.get(ref)
  if (ofProject?.delete(slug)) size -= 1
  if (ofProject?.size === 0) kept.delete(ref)
}

const read = ({ db }: Reader, wanted: readonly { ref: string; slug: string }[]): Promise<KnownFunction[]> =>
  rowsOf<KnownFunction>(
    db,
    sql`select w.ref, w.slug, p.status as "projectStatus", p.secrets_generation as "secretsGeneration",
        p.sealed_jwt_secret as "sealedJwtSecret", p.sealed_password as "sealedPassword",
        case when f.id is not null then json_build_object('id', f.id, 'status', f.status, 'version', f.version,
          'verifyJwt', f.verify_jwt, 'deploymentId', f.deployment_id) end as deployed
      from json_to_recordset(${JSON.stringify(wanted)}::json) as w (ref text, slug text)
      join projects p on p.ref = w.ref and p.removed_at is null
      left join functions f on f.project_ref = w.ref and f.slug = w.slug`,
  )
