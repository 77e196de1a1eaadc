import { randomInt } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { TEMPORARY_LOGIN } from '../../src/engine/names.ts'
import type { Instance } from '../instances/types.ts'
import { Fatal, message, READY_FOR_QUERY } from './messages.ts'
import { cancel, type Identity, type ServerSession } from './server-session.ts'
import { join } from './streams.ts'

/** An open connection of a client that has authenticated. */
export interface Session extends Identity {
  readonly instance: Instance
  readonly address: string
  readonly isSecure: boolean
  readonly isTrusted: boolean
}

interface OpenSession extends Session {
  client: Duplex
  server?: ServerSession
  key?: string
}

/** Of all temporary logins of an instance together, so that its owner finds room beside them. */
const TEMPORARY_MAX = 20
const isTemporary = ({ role, isTrusted }: Session) => !isTrusted && new RegExp(TEMPORARY_LOGIN).test(role)

/** The open sessions by instance, and the keys by which clients cancel their statements. */
export class Sessions {
  readonly #byInstance = new Map<string, Set<OpenSession>>()
  readonly #byKey = new Map<string, OpenSession>()

  /** Counts the session until its client is gone. `limit` bounds the untrusted sessions of the instance. */
  admit(session: Session, client: Duplex, limit: number): OpenSession {
    const { name } = session.instance
    if (client.destroyed) throw new Fatal('57P01', 'terminating connection due to administrator command')
    if (!session.isTrusted && this.count(name, ({ isTrusted }) => !isTrusted) >= limit) {
      throw new Fatal('53300', 'remaining connection slots are reserved for the services of the project')
    }
    if (isTemporary(session) && this.count(name, isTemporary) >= TEMPORARY_MAX) {
      throw new Fatal('53300', `temporary logins hold ${TEMPORARY_MAX} sessions already`)
    }
    const open: OpenSession = { ...session, client }
    const ofInstance = this.#byInstance.get(name) ?? new Set()
    this.#byInstance.set(name, ofInstance.add(open))
    client.once('close', () => this.#forget(open))
    return open
  }

  /** Tells the client that its session is ready, with a key of the gateway's own, and passes bytes from then on. */
  connect(open: OpenSession, server: ServerSession, greeting: readonly Buffer[]) {
    if (open.client.destroyed) return void server.socket.destroy()
    open.server = server
    // The process number stays what `pg_backend_pid()` tells; the secret is unique over all instances.
    const key = Buffer.from(server.key)
    do key.writeInt32BE(randomInt(-(2 ** 31), 2 ** 31), 4)
    while (this.#byKey.has(key.toString('hex')))
    this.#byKey.set(key.toString('hex'), open)
    open.key = key.toString('hex')
    server.socket.once('close', () => this.#forget(open))
    open.client.write(Buffer.concat([...greeting, server.greeting, message('K', key), READY_FOR_QUERY]))
    join(open.client, server.socket)
  }

  count(name: string, filter: (session: Session) => boolean = () => true): number {
    return [...(this.#byInstance.get(name) ?? [])].filter(filter).length
  }

  /** Closes sessions, and stops what they are doing. */
  end(name: string, filter: (session: Session) => boolean = () => true) {
    for (const open of [...(this.#byInstance.get(name) ?? [])].filter(filter)) {
      this.#forget(open)
      open.client.destroy()
      if (!open.server) continue
      open.server.socket.destroy()
      cancel(open.instance, open.server.key).catch(() => {})
    }
  }

  endAll() {
    for (const name of [...this.#byInstance.keys()]) this.end(name)
  }

  /** Whether the key belongs to a session. */
  async cancel(key: Buffer): Promise<boolean> {
    const open = this.#byKey.get(key.toString('hex'))
    if (open?.server) await cancel(open.instance, open.server.key)
    return open !== undefined
  }

  #forget(open: OpenSession) {
    if (open.key) this.#byKey.delete(open.key)
    const ofInstance = this.#byInstance.get(open.instance.name)
    ofInstance?.delete(open)
    if (ofInstance?.size === 0) this.#byInstance.delete(open.instance.name)
  }
}
