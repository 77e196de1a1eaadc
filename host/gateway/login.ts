import { timingSafeEqual } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { scramKeys } from '../../src/engine/scram.ts'
import { KeyedMutex, Semaphore } from '../instances/mutex.ts'
import type { Instance } from '../instances/types.ts'
import { SERVICE_ROLES } from '../template/roles.ts'
import { AUTHENTICATION_OK, authentication, Fatal, readMessage, text } from './messages.ts'
import { mockVerifier, parseVerifier, ScramExchange } from './scram.ts'
import type { Attempt } from './unauthenticated.ts'

/** Postgres truncates longer names, which could then mean another role. */
const ROLE_BYTES_MAX = 63
/** The same limit as in Postgres. */
const SASL_BYTES_MAX = 1024

/** Owners choose the iterations of a verifier; a password is not checked for a client if there are more. */
const CHECKED_ITERATIONS_MAX = 100_000
/** Each running check occupies one of libuv's four threads, which file access and name resolution need, too. */
const runningChecks = new Semaphore(2)
/** The checks of an instance run one at a time, so that those of other instances do not wait for all of them. */
const instanceChecks = new KeyedMutex()

const MECHANISM = 'SCRAM-SHA-256'

interface RoleRow {
  maxConnections: number
  password: string | null
  canLogin: boolean | null
  isSuper: boolean | null
  isExpired: boolean | null
  comment: string | null
}

/** The comment of a temporary login is shorter. Owners may write longer ones, which could exhaust the host's memory. */
const COMMENT_BYTES_MAX = 16 * 1024

/** Operators are qualified because the owner may set the search path of the database. */
const ROLE_SQL = `
  select pg_catalog.current_setting('max_connections')::int as "maxConnections", rolpassword as password,
    rolcanlogin as "canLogin", rolsuper as "isSuper",
    rolvaliduntil operator(pg_catalog.<=) pg_catalog.clock_timestamp() as "isExpired",
    case when pg_catalog.octet_length(comment) operator(pg_catalog.<=) ${COMMENT_BYTES_MAX} then comment end as comment
  from (select) as always left join pg_catalog.pg_authid on rolname operator(pg_catalog.=) $1::pg_catalog.name,
    pg_catalog.shobj_description(oid, 'pg_authid') as comment`

export interface Login {
  /** Stored SCRAM verifier of the role's password. */
  verifier: string
  /** Networks that the comment of a temporary role restricts it to. */
  networks: readonly string[] | undefined
  maxConnections: number
}

interface PasswordRequest {
  instance: Instance
  role: string
  /** Key of the salts that unknown roles get. */
  secret: string
  guess: Guess
}

/** Runs the check of a password and counts a `WrongPassword`. Rejects before the check if the rules refuse the caller by now. */
export type Guess = <Value>(check: () => Value | Promise<Value>) => Promise<Value>

interface LoginRequest extends PasswordRequest {
  attempt: Pick<Attempt, 'waitFor'>
}

/** Asks the client for the role's password. A role that may not log in gets the same answers as a wrong password. */
export async function authenticate(stream: Duplex, request: LoginRequest): Promise<Login> {
  const { instance, role, secret, attempt, guess } = request
  const { row, verifier } = await attempt.waitFor(instance.name, () => findRole(instance, role))
  const exchange = new ScramExchange(verifier ?? mockVerifier(secret, `${instance.name} ${role}`))

  stream.write(authentication(10, text(MECHANISM, '')))
  const first = await readSasl(stream)
  const end = first.indexOf(0)
  if (first.toString('utf8', 0, end) !== MECHANISM) throw new Fatal('08P01', 'unknown SASL mechanism')
  stream.write(authentication(11, Buffer.from(exchange.begin(first.toString('utf8', end + 5)))))
  const final = (await readSasl(stream)).toString('utf8')
  return guess(() => {
    const proof = exchange.finish(final)
    if (!verifier || !row || proof === undefined) throw new WrongPassword(role)
    stream.write(Buffer.concat([authentication(12, Buffer.from(proof)), AUTHENTICATION_OK]))
    return loginOf(row)
  })
}

/** Checks a password that the client has sent in clear text. */
export async function checkPassword(request: PasswordRequest, password: string): Promise<Login> {
  const { instance, role, secret, guess } = request
  const { row, verifier: stored } = await findRole(instance, role)
  const verifier = stored && stored.iterations <= CHECKED_ITERATIONS_MAX ? stored : undefined
  const { iterations, salt, storedKey } = verifier ?? mockVerifier(secret, `${instance.name} ${role}`)
  const check = async () => {
    const keys = await scramKeys(password, new Uint8Array(Buffer.from(salt, 'base64')), iterations)
    const isRight = timingSafeEqual(Buffer.from(keys.storedKey), storedKey)
    if (!verifier || !row || !isRight) throw new WrongPassword(role)
    return loginOf(row)
  }
  return instanceChecks.run(instance.name, () => runningChecks.run(() => guess(check)))
}

/** Throws unless the role may still log in and has the same password as before. */
export async function recheckLogin(instance: Instance, role: string, { verifier: known }: Login): Promise<Login> {
  const { row, verifier } = await findRole(instance, role)
  if (!verifier || row?.password !== known) throw new WrongPassword(role)
  return loginOf(row)
}

/** Reads the role; `verifier` is undefined if the role may not log in through the gateway. */
async function findRole(instance: Instance, role: string) {
  const isValidName = Buffer.byteLength(role) <= ROLE_BYTES_MAX
  const [row] = await instance.admin.rows<RoleRow>(ROLE_SQL, [isValidName ? role : ''])
  const canEnter = row && isValidName && mayLogIn(instance.name, role, row)
  return { row, verifier: canEnter ? parseVerifier(row.password ?? '') : undefined }
}

const loginOf = ({ comment, maxConnections, password }: RoleRow): Login => ({
  verifier: password ?? '',
  networks: networksOf(comment),
  maxConnections,
})

export class WrongPassword extends Fatal {
  constructor(role: string) {
    super('28P01', `password authentication failed for user "${role}"`)
  }
}

function mayLogIn(name: string, role: string, { canLogin, isSuper, isExpired }: RoleRow): boolean {
  if (name === 'control' && role !== 'pilothouse') return false
  return canLogin === true && isSuper === false && isExpired !== true && !SERVICE_ROLES.has(role)
}

async function readSasl(stream: Duplex): Promise<Buffer> {
  const { type, body } = await readMessage(stream, SASL_BYTES_MAX)
  if (type !== 'p') throw new Fatal('08P01', `expected SASL response, got message type ${type.charCodeAt(0)}`)
  return body
}

/** Reads the networks from the comment of a temporary login; other comments are free text of the owner. */
function networksOf(comment: string | null): readonly string[] | undefined {
  try {
    const { networks } = JSON.parse(comment ?? '{}') ?? {}
    return Array.isArray(networks) ? networks.map(String) : undefined
  } catch {
    return undefined
  }
}
