import { randomInt } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { TEMPORARY_LOGIN } from '../../src/engine/names.ts'
import type { Instance } from '../instances/types.ts'
import { Fatal, message, READY_FOR_QUERY } from './messages.ts'
import { cancel, type Identity, type ServerSession } from './server-session.ts'
import { pipeStreams } from './streams.ts'

/** An open connection of a client that has authenticated. */
export interface Session extends Identity {
  readonly instance: Instance
  readonly address: string
  readonly countedAddress?: string | undefined
  readonly isSecure: boolean
  readonly isTrusted: boolean
}

interface OpenSession extends Session {
  client: Duplex
  server?: ServerSession
  key?: string
}

/** Limit for all temporary logins of an instance together, so that they cannot take all of its owner's slots. */
const TEMPORARY_SESSIONS_MAX = 20
export const isTemporary = ({ role, isTrusted }: Session) => !isTrusted && new RegExp(TEMPORARY_LOGIN).test(role)

/** The open sessions of each instance, and the keys with which clients cancel their statements. */
export class Sessions {
  readonly #byInstance = new Map<string, Set<OpenSession>>()
  readonly #byKey = new Map<string, OpenSession>()

  /** Counts the session until its client disconnects. `limit` bounds the untrusted sessions of the instance. */
  admit(session: Session, client: Duplex, limit: number): OpenSession {
    const { name } = session.instance
    if (client.destroyed) throw new Fatal('57P01', 'terminating connection due to administrator command')
    if (!session.isTrusted && this.count(name, ({ isTrusted }) => !isTrusted) >= limit) {
      throw new Fatal('53300', 'remaining connection slots are reserved for the services of the project')
    }
    if (isTemporary(session) && this.count(name, isTemporary) >= TEMPORARY_SESSIONS_MAX) {
      throw new Fatal('53300', `temporary logins hold ${TEMPORARY_SESSIONS_MAX} sessions already`)
    }
    const open: OpenSession = { ...session, client }
    const ofInstance = this.#byInstance.get(name) ?? new Set()
    this.#byInstance.set(name, ofInstance.add(open))
    client.once('close', () => this.#remove(open))
    return open
  }

  /** Sends the client the greeting with a cancel key of the gateway's own, and passes bytes from then on. */
  connect(open: OpenSession, server: ServerSession, greeting: readonly Buffer[]) {
    if (open.client.destroyed) return void server.socket.destroy()
    open.server = server
    // The process number stays that of `pg_backend_pid()`; the secret is unique across all instances.
    const key = Buffer.from(server.key)
    do key.writeInt32BE(randomInt(-(2 ** 31), 2 ** 31), 4)
    while (this.#byKey.has(key.toString('hex')))
    this.#byKey.set(key.toString('hex'), open)
    open.key = key.toString('hex')
    server.socket.once('close', () => this.#remove(open))
    open.client.write(Buffer.concat([...greeting, server.greeting, message('K', key), READY_FOR_QUERY]))
    pipeStreams(open.client, server.socket)
  }

  count(name: string, filter: (session: Session) => boolean = () => true): number {
    return [...(this.#byInstance.get(name) ?? [])].filter(filter).length
  }

  /** Closes sessions and cancels their statements. */
  end(name: string, filter: (session: Session) => boolean = () => true) {
    for (const open of [...(this.#byInstance.get(name) ?? [])].filter(filter)) {
      this.#remove(open)
      open.client.destroy()
      if (!open.server) continue
      open.server.socket.destroy()
      cancel(open.instance, open.server.key).catch(() => {})
    }
  }

  endAll() {
    for (const name of [...this.#byInstance.keys()]) this.end(name)
  }

  /** Cancels the statement of the session with this key. Returns false for an unknown key. */
  async cancel(key: Buffer): Promise<boolean> {
    const open = this.#byKey.get(key.toString('hex'))
    if (open?.server) await cancel(open.instance, open.server.key)
    return open !== undefined
  }

  #remove(open: OpenSession) {
    if (open.key) this.#byKey.delete(open.key)
    const ofInstance = this.#byInstance.get(open.instance.name)
    ofInstance?.delete(open)
    if (ofInstance?.size === 0) this.#byInstance.delete(open.instance.name)
  }
}
