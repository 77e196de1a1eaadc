import { Sha256 } from '@smithy/core/checksum'
import { SignatureV4 } from '@smithy/signature-v4'
import type { Config } from '../../../config.ts'
import { partsOf } from './configurations.ts'

/** A request to AWS RAM failed. */
export class RamFailure extends Error {
  override name = 'RamFailure'
  /** The error code of AWS; undefined if there was no response. */
  readonly code: string | undefined

  constructor(message: string, { code, cause }: { code?: string | undefined; cause?: unknown } = {}) {
    super(message, { cause })
    this.code = code
  }
}

const UNKNOWN = 'UnknownResourceException'
/** Errors of the request itself, which a retry would repeat. Others may pass with time or be fixed by the operator. */
const REFUSALS: readonly (string | undefined)[] = [
  UNKNOWN,
  'IdempotentParameterMismatchException',
  'InvalidClientTokenException',
  'InvalidParameterException',
  'MalformedArnException',
  'OperationNotPermittedException',
  'ResourceShareLimitExceededException',
  'TagLimitExceededException',
  'TagPolicyViolationException',
]
export const isRefusal = (error: unknown): error is RamFailure =>
  error instanceof RamFailure && REFUSALS.includes(error.code)

const REQUEST_MS_MAX = 15_000
/** A page may be empty even if another one follows. */
const PAGES_MAX = 20
const TAG = 'pilothouse-association'

export type AssociationState =
  | 'ASSOCIATING'
  | 'ASSOCIATED'
  | 'FAILED'
  | 'DISASSOCIATING'
  | 'DISASSOCIATED'
  | 'SUSPENDED'
  | 'SUSPENDING'
  | 'RESTORING'

export interface Associated {
  associatedEntity?: string
  status?: AssociationState
  statusMessage?: string
}

interface Share {
  resourceShareArn: string
  status?: 'PENDING' | 'ACTIVE' | 'FAILED' | 'DELETING' | 'DELETED'
}

interface NewShare {
  name: string
  /** Idempotency token: a repeated request returns the same share. */
  token: string
  accountId: string
}

interface RamRequest {
  method?: 'POST' | 'DELETE'
  path: string
  query?: Record<string, string>
  body?: object
}

export type Ram = ReturnType<typeof openRam>

/** A client of AWS RAM (API version 2018-01-04) in the region of a resource configuration. `signal` aborts all requests. */
export function openRam(config: Config, configurationArn: string, signal: AbortSignal) {
  const send = createSender(config, configurationArn, signal)

  async function listAll<Item>(path: string, body: object, listed: string): Promise<Item[]> {
    const items: Item[] = []
    let nextToken: string | undefined
    for (let page = 0; page < PAGES_MAX; page++) {
      const reply = await send({ path, body: { ...body, ...(nextToken && { nextToken }) } })
      items.push(...((reply[listed] as Item[] | undefined) ?? []))
      nextToken = reply.nextToken as string | undefined
      if (!nextToken) return items
    }
    throw new RamFailure(`AWS RAM returned more than ${PAGES_MAX} pages`)
  }

  const emptyIfUnknown = <Item>(listing: Promise<Item[]>): Promise<Item[]> =>
    listing.catch((error) => {
      if (error instanceof RamFailure && error.code === UNKNOWN) return []
      throw error
    })

  return {
    /** Creates a share; this invites the account unless it is in the same AWS organization. */
    async createShare({ name, token, accountId }: NewShare): Promise<string> {
      const { resourceShare } = await send({
        path: '/createresourceshare',
        body: {
          name,
          resourceArns: [configurationArn],
          principals: [accountId],
          allowExternalPrincipals: true,
          tags: [{ key: TAG, value: token }],
          clientToken: token,
        },
      })
      const arn = (resourceShare as Partial<Share> | undefined)?.resourceShareArn
      if (!arn) throw new RamFailure('AWS RAM returned no ARN of the share')
      return arn
    },
    /** Finds shares by ARN if known, otherwise by token. AWS lists deleted shares for some hours. */
    findShares: (by: { arn: string } | { token: string }): Promise<Share[]> => {
      const filter =
        'arn' in by ? { resourceShareArns: [by.arn] } : { tagFilters: [{ tagKey: TAG, tagValues: [by.token] }] }
      return emptyIfUnknown(listAll('/getresourceshares', { resourceOwner: 'SELF', ...filter }, 'resourceShares'))
    },
    associations: (shareArn: string, associationType: 'RESOURCE' | 'PRINCIPAL'): Promise<Associated[]> =>
      emptyIfUnknown(
        listAll(
          '/getresourceshareassociations',
          { associationType, resourceShareArns: [shareArn] },
          'resourceShareAssociations',
        ),
      ),
    async deleteShare(shareArn: string): Promise<void> {
      await send({ method: 'DELETE', path: '/deleteresourceshare', query: { resourceShareArn: shareArn } })
    },
  }
}

/** Returns a function that sends REST-JSON requests signed with Signature Version 4. */
function createSender(config: Config, configurationArn: string, signal: AbortSignal) {
  const { PRIVATE_LINK_AWS_ACCESS_KEY_ID: accessKeyId, PRIVATE_LINK_AWS_SECRET_ACCESS_KEY: secretAccessKey } = config
  if (!accessKeyId || !secretAccessKey) throw new RamFailure('private link is no longer configured')
  const { region, partition } = partsOf(configurationArn)
  const domain = partition === 'aws-cn' ? 'amazonaws.com.cn' : 'amazonaws.com'
  const base = new URL(config.PRIVATE_LINK_RAM_URL ?? `https://ram.${region}.${domain}`)
  const signer = new SignatureV4({
    service: 'ram',
    region,
    credentials: { accessKeyId, secretAccessKey },
    sha256: Sha256,
  })

  return async ({ method = 'POST', path, query = {}, body }: RamRequest): Promise<Record<string, unknown>> => {
    const url = new URL(base.pathname.replace(/\/$/, '') + path, base)
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
    const content = body && JSON.stringify(body)
    const { headers } = await signer.sign({
      method,
      protocol: url.protocol,
      hostname: url.hostname,
      path: url.pathname,
      query,
      headers: { host: url.host, ...(content !== undefined && { 'content-type': 'application/json' }) },
      body: content,
    })
    const { host: _, ...sent } = headers
    const limit = AbortSignal.any([signal, AbortSignal.timeout(REQUEST_MS_MAX)])
    const request = { method, headers: sent, ...(content !== undefined && { body: content }), signal: limit }
    const { response, text } = await fetchText(url, { ...request, redirect: 'manual' })
    const reply = parseReply(text)
    if (response.ok) return reply
    throw toFailure(response.status, response.headers.get('x-amzn-errortype'), reply)
  }
}

async function fetchText(url: URL, request: RequestInit) {
  try {
    const response = await fetch(url, request)
    return { response, text: await response.text() }
  } catch (cause) {
    throw new RamFailure('AWS RAM did not answer', { cause })
  }
}

function parseReply(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}

/** Removes the namespace before and the address after the name of an error. */
function toFailure(status: number, type: string | null, reply: Record<string, unknown>): RamFailure {
  const errorType = type ?? (typeof reply.__type === 'string' ? reply.__type : '')
  const code = errorType.replace(/:.*$/s, '').replace(/^.*#/s, '') || undefined
  const replyMessage = reply.message ?? reply.Message
  const message = typeof replyMessage === 'string' ? replyMessage : 'no reason given'
  return new RamFailure(`AWS RAM answered ${status}${code ? ` ${code}` : ''}: ${message}`, { code })
}
