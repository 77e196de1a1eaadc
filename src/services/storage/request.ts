import type { Context } from 'hono'
import type { SystemCtx } from '../../ctx.ts'
import { tokenIn } from '../../platform/http/request-token.ts'
import { REF } from '../../platform/identifiers.ts'
import { InvalidCredential } from '../../platform/jwt/credential.ts'
import { readJws } from '../../platform/jwt/jws.ts'
import { isApiKey, projectOfApiKey } from '../gateway/api-key.ts'
import type { RequestEnv } from '../gateway/begin-request.ts'
import { verifyCredential } from '../gateway/credentials.ts'
import { type OpenedProject, openProject } from '../gateway/open-project.ts'
import type { Caller } from './database.ts'
import { StorageError, type StorageErrorCode } from './storage-error.ts'

export interface StorageEnv extends RequestEnv {
  Variables: RequestEnv['Variables'] & {
    project: OpenedProject
    facts: { project?: string; error?: StorageErrorCode }
  }
}
export type StorageContext = Context<StorageEnv>

export const tokenOf = ({ req }: Context): string | undefined => tokenIn(req.raw.headers, req.query('authorization'))

/** Requires a valid credential. */
export async function requireCaller(c: StorageContext, operation: string): Promise<Caller> {
  const caller = await authenticate(c, operation)
  if (!caller) throw new StorageError('InvalidRequest', "headers must have required property 'authorization'")
  return caller
}

/** Undefined without a valid credential: such a caller may read public buckets only. */
export const optionalCaller = (c: StorageContext, operation: string): Promise<Caller | undefined> =>
  authenticate(c, operation).catch((error) => {
    if (!(error instanceof InvalidCredential)) throw error
    return undefined
  })

/** Undefined without a token. Rejects with InvalidCredential. */
async function authenticate(c: StorageContext, operation: string): Promise<Caller | undefined> {
  const token = tokenOf(c)
  if (token === undefined) return undefined
  const credential = await verifyCredential(c.var.project.trust, token, c.var.ctx.now())
  const jwt = isApiKey(token) ? '' : token
  return { ...credential, method: c.req.method, path: c.req.path, token: jwt, headers: headersOf(c), operation }
}

const CREDENTIAL_HEADERS = ['authorization', 'apikey', 'cookie', 'x-signature']

function headersOf({ req }: StorageContext): string {
  return JSON.stringify(Object.fromEntries([...req.raw.headers].filter(([name]) => !CREDENTIAL_HEADERS.includes(name))))
}

/** The caller that writes for the holder of a signed URL, whose permission was checked when it was signed. */
export const serviceCaller = (c: StorageContext, operation: string): Caller => ({
  ...{ role: 'service_role', claims: { role: 'service_role' }, token: '' },
  ...{ method: c.req.method, path: c.req.path, headers: headersOf(c), operation },
})

interface Credentials {
  token: string | undefined
  /** The `apikey` header, which clients send in addition to a user's token. */
  apiKey: string | undefined
}

/** The project that the address names, else the one that owns the API key or that the `ref` claim of the token names. */
export async function findProject(ctx: SystemCtx, ref: string | undefined, { token = '', apiKey = '' }: Credentials) {
  if (ref !== undefined) return requireProject(ctx, ref)
  const owner = await findOwner(ctx, token)
  const credential = owner === undefined ? apiKey : token
  const project = await requireProject(ctx, owner ?? (await findOwner(ctx, apiKey)))
  const isOwnKey = credential === token && isApiKey(token)
  if (!isOwnKey) await verifyCredential(project.trust, credential, ctx.now()).catch(throwNoSuchProject)
  return project
}

async function requireProject(ctx: SystemCtx, ref: string | undefined): Promise<OpenedProject> {
  const project = ref !== undefined && REF.test(ref) ? await openProject(ctx, ref) : undefined
  if (!project) throw new StorageError('NoSuchProject')
  return project
}

const findOwner = async (ctx: SystemCtx, token: string) =>
  isApiKey(token) ? projectOfApiKey(ctx, token) : refIn(token)

/** Without a valid credential, an existing project looks like one that does not exist. */
const throwNoSuchProject = () => {
  throw new StorageError('NoSuchProject')
}

function refIn(token: string): string | undefined {
  const ref = readJws(token)?.claims?.ref
  return typeof ref === 'string' ? ref : undefined
}
