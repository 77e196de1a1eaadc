import type { Context } from 'hono'
import { type OpenedProject, openProject } from '../auth/project.ts'
import { InvalidCredential, verifyClaims, verifyCredential } from '../auth/project-token.ts'
import type { Bindings, LogFields, SystemCtx } from '../env.ts'
import type { Caller } from './database.ts'
import { StorageError } from './error.ts'

export interface StorageEnv {
  Bindings: Bindings
  Variables: {
    ctx: SystemCtx
    project: OpenedProject
    facts: LogFields
  }
}
export type StorageContext = Context<StorageEnv>

/** What everything below the routes works with. */
export interface Storage {
  ctx: SystemCtx
  project: OpenedProject
}

/** The credential as it came: in the header with or without `Bearer`, else in the query, else as the key that gateways take. */
export function tokenOf({ req }: Context): string | undefined {
  const text = req.header('authorization') ?? req.query('authorization') ?? req.header('apikey')
  return text?.replace(/^Bearer\s+/i, '').trim()
}

/** `operation` is what policies read it is, such as `storage.object.list`. */
export async function callerOf(c: StorageContext, operation: string): Promise<Caller> {
  const token = tokenOf(c)
  if (token === undefined) {
    throw new StorageError('InvalidRequest', "headers must have required property 'authorization'")
  }
  try {
    return await verified(c, token, operation)
  } catch (error) {
    throw error instanceof InvalidCredential ? new StorageError('AccessDenied', error.message) : error
  }
}

/** Undefined for no credential and for one that does not hold: such a caller reads what is public. */
export async function callerIfAny(c: StorageContext, operation: string): Promise<Caller | undefined> {
  const token = tokenOf(c)
  if (token === undefined) return undefined
  try {
    return await verified(c, token, operation)
  } catch (error) {
    if (error instanceof InvalidCredential) return undefined
    throw error
  }
}

async function verified(c: StorageContext, token: string, operation: string): Promise<Caller> {
  const credential = await verifyCredential(c.var.project, token, c.var.ctx.now())
  return { ...credential, method: c.req.method, path: c.req.path, token, headers: headersOf(c), operation }
}

const CREDENTIALS = ['authorization', 'apikey', 'cookie']

function headersOf({ req }: StorageContext): string {
  return JSON.stringify(Object.fromEntries([...req.raw.headers].filter(([name]) => !CREDENTIALS.includes(name))))
}

/** Who writes in the place of one whose permission was checked before: the holder of a signed URL. */
export const serviceOf = (c: StorageContext, operation: string): Caller => ({
  ...{ role: 'service_role', claims: { role: 'service_role' }, token: '' },
  ...{ method: c.req.method, path: c.req.path, headers: headersOf(c), operation },
})

export function requireServiceRole({ role }: Caller): void {
  if (role !== 'service_role') throw new StorageError('InvalidRole')
}

const REF = /^[a-z]{20}$/

/** The project that the address names, else the one that the credential was made for (its claim `ref`). */
export async function findProject(ctx: SystemCtx, ref: string | undefined, token: string | undefined) {
  const named = ref ?? refIn(token)
  if (named === undefined || !REF.test(named)) throw new StorageError('NoSuchProject')
  const project = await openProject(ctx, named)
  if (!project) throw new StorageError('NoSuchProject')
  if (ref === undefined) await verifyClaims(project, token ?? '', ctx.now()).catch(refuse)
  return project
}

/** Who only guesses at projects learns nothing of them. */
const refuse = () => {
  throw new StorageError('NoSuchProject')
}

function refIn(token: string | undefined): string | undefined {
  try {
    const payload = token?.split('.')[1] ?? ''
    const { ref } = JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/')))
    return typeof ref === 'string' ? ref : undefined
  } catch {
    return undefined
  }
}
