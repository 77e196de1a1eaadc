import type { Context } from 'hono'
import type { SystemCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import type { QueryCount } from '../../platform/db/client.ts'
import type { RequestFacts } from '../../platform/http/log.ts'
import { tokenIn } from '../../platform/http/request-token.ts'
import { InvalidCredential } from '../../platform/jwt/credential.ts'
import { isApiKey, projectOfApiKey } from '../gateway/api-key.ts'
import { verifyCredential } from '../gateway/credentials.ts'
import { type OpenedProject, openProject } from '../gateway/open-project.ts'
import type { Caller } from './database.ts'
import { StorageError, type StorageErrorCode } from './storage-error.ts'

export interface StorageEnv {
  Bindings: Bindings
  Variables: {
    ctx: SystemCtx
    project: OpenedProject
    facts: RequestFacts & QueryCount & { project?: string; error?: StorageErrorCode }
  }
}
export type StorageContext = Context<StorageEnv>

/** What everything below the routes works with. */
export interface Storage {
  ctx: SystemCtx
  project: OpenedProject
}

export const tokenOf = ({ req }: Context): string | undefined => tokenIn(req.raw.headers, req.query('authorization'))

/** `operation` is what policies read it is, such as `storage.object.list`. */
export async function callerOf(c: StorageContext, operation: string): Promise<Caller> {
  c.var.facts.operation = operation
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
  c.var.facts.operation = operation
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
  const credential = await verifyCredential(c.var.project.trust, token, c.var.ctx.now())
  const held = isApiKey(token) ? '' : token
  return { ...credential, method: c.req.method, path: c.req.path, token: held, headers: headersOf(c), operation }
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

interface Credentials {
  token: string | undefined
  /** What clients send beside the token of a user. */
  apiKey: string | undefined
}

/** The project that the address names, else the one that a credential was made for: whose key it is, or its claim `ref`. */
export async function findProject(ctx: SystemCtx, ref: string | undefined, { token = '', apiKey = '' }: Credentials) {
  if (ref !== undefined) return openNamed(ctx, ref)
  const owner = await ownerOf(ctx, token)
  const credential = owner === undefined ? apiKey : token
  const project = await openNamed(ctx, owner ?? (await ownerOf(ctx, apiKey)))
  const isTold = credential === token && isApiKey(token)
  if (!isTold) await verifyCredential(project.trust, credential, ctx.now()).catch(refuse)
  return project
}

async function openNamed(ctx: SystemCtx, ref: string | undefined): Promise<OpenedProject> {
  const project = ref !== undefined && REF.test(ref) ? await openProject(ctx, ref) : undefined
  if (!project) throw new StorageError('NoSuchProject')
  return project
}

const ownerOf = async (ctx: SystemCtx, token: string) => (isApiKey(token) ? projectOfApiKey(ctx, token) : refIn(token))

/** Who only guesses at projects learns nothing of them. */
const refuse = () => {
  throw new StorageError('NoSuchProject')
}

function refIn(token: string): string | undefined {
  try {
    const payload = token.split('.')[1] ?? ''
    const { ref } = JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/')))
    return typeof ref === 'string' ? ref : undefined
  } catch {
    return undefined
  }
}
