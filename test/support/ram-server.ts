import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import * as z from 'zod'
import { listenOnFreePort } from './listen.ts'
import { signatureProblem } from './ram-signature.ts'

/** The key of the account that shares. */
export const SIGNER = { accessKeyId: 'AKIDOFTHETESTS', secretAccessKey: 'a+secret/of=tests', region: 'eu-central-1' }
const OWNER = '111122223333'

type State = 'ASSOCIATING' | 'ASSOCIATED' | 'FAILED' | 'DISASSOCIATED'
interface Associated {
  entity: string
  status: State
  message?: string
}
interface Share {
  arn: string
  name: string
  status: 'ACTIVE' | 'DELETING' | 'DELETED'
  token: string
  /** The body of the request that created it, as JSON. */
  request: string
  tags: { key: string; value: string }[]
  resource: Associated
  principal: Associated
}

/** A fault that replaces the answer of the next requests to a path or, with `after`, follows their work. */
interface Fault {
  path: string
  times: number
  /** The status; 0 closes the connection. */
  status: number
  code: string
  after?: boolean
  /** Limits the fault to requests whose body or address contains this. */
  about?: string
  /** The answer waits for this promise. */
  until?: Promise<unknown>
}

class Refused extends Error {
  readonly code: string
  readonly status: number

  constructor(code: string, message: string, status = 400) {
    super(message)
    this.code = code
    this.status = status
  }
}

const nextToken = z.string().optional()
const bodies = {
  '/createresourceshare': z.strictObject({
    name: z.string().min(1),
    resourceArns: z.tuple([z.string()]),
    principals: z.tuple([z.string().regex(/^\d{12}$/)]),
    allowExternalPrincipals: z.literal(true),
    tags: z.tuple([z.strictObject({ key: z.string(), value: z.string() })]),
    clientToken: z.uuid(),
  }),
  '/getresourceshares': z.strictObject({
    resourceOwner: z.literal('SELF'),
    resourceShareArns: z.tuple([z.string()]).optional(),
    tagFilters: z.tuple([z.strictObject({ tagKey: z.string(), tagValues: z.tuple([z.string()]) })]).optional(),
    nextToken,
  }),
  '/getresourceshareassociations': z.strictObject({
    associationType: z.enum(['RESOURCE', 'PRINCIPAL']),
    resourceShareArns: z.tuple([z.string()]),
    nextToken,
  }),
}

/** Starts AWS RAM on this machine, as the owner of shares sees it: JSON over HTTP with signatures of version 4. */
export async function startRamServer() {
  const shares = new Map<string, Share>()
  const faults: Fault[] = []
  /** The paths of all requests, in order. */
  const calls: string[] = []
  /** Accounts of the sharing account's own AWS organization, which need no invitation. */
  const organization = new Set<string>()
  /** ARNs of shares that AWS does not list, as if they had never existed, or not yet. */
  const hidden = new Set<string>()

  function find(arn: string): Share {
    const share = shares.get(arn)
    if (!share || hidden.has(arn))
      throw new Refused('UnknownResourceException', `ResourceShare ${arn} could not be found.`)
    return share
  }

  function create(body: z.output<(typeof bodies)['/createresourceshare']>) {
    const { name, clientToken: token, resourceArns, principals, tags } = body
    const request = JSON.stringify(body)
    const known = [...shares.values()].find((share) => share.token === token)
    if (known && known.request !== request)
      throw new Refused('IdempotentParameterMismatchException', 'Not the same request')
    const [entity, account] = [resourceArns[0], principals[0]]
    if (account === OWNER) throw new Refused('OperationNotPermittedException', 'It cannot be shared with its owner.')
    const arn = `arn:aws:ram:${SIGNER.region}:${OWNER}:resource-share/${randomUUID()}`
    const share: Share = known ?? {
      ...{ arn, name, status: 'ACTIVE', token, request, tags },
      resource: { entity, status: 'ASSOCIATING' },
      principal: { entity: account, status: organization.has(account) ? 'ASSOCIATED' : 'ASSOCIATING' },
    }
    shares.set(share.arn, share)
    return { resourceShare: shareReply(share), clientToken: token }
  }

  const shareReply = ({ arn, name, status, tags }: Share) => ({
    resourceShareArn: arn,
    name,
    owningAccountId: OWNER,
    allowExternalPrincipals: true,
    status,
    tags,
    creationTime: 1.7e9,
  })

  /** Returns an empty first page, as RAM may. */
  const paged = <Item>(token: string | undefined, name: string, items: Item[]) =>
    token === undefined ? { [name]: [], nextToken: 'more' } : { [name]: items }

  function list({ resourceShareArns, tagFilters, nextToken: token }: z.output<(typeof bodies)['/getresourceshares']>) {
    const [{ tagKey, tagValues }] = tagFilters ?? [{ tagKey: '', tagValues: [] }]
    const isTagged = ({ tags }: Share) =>
      tags.some(({ key, value }) => key === tagKey && tagValues.some((v) => v === value))
    const found = resourceShareArns
      ? resourceShareArns.map(find)
      : [...shares.values()].filter((share) => isTagged(share) && !hidden.has(share.arn))
    const reply = paged(token, 'resourceShares', found.map(shareReply))
    // A deletion that is in progress in one reply is complete in the next.
    if (token) for (const share of found) if (share.status === 'DELETING') share.status = 'DELETED'
    return reply
  }

  function associations(body: z.output<(typeof bodies)['/getresourceshareassociations']>) {
    const { associationType, resourceShareArns, nextToken: token } = body
    const share = find(resourceShareArns[0])
    const { entity, status, message } = associationType === 'RESOURCE' ? share.resource : share.principal
    const { resourceShareArn, name } = shareReply(share)
    const association = { resourceShareArn, resourceShareName: name, associatedEntity: entity, associationType, status }
    const isSettling = token && associationType === 'RESOURCE' && share.resource.status === 'ASSOCIATING'
    if (isSettling) share.resource.status = 'ASSOCIATED'
    return paged(token, 'resourceShareAssociations', [{ ...association, ...(message && { statusMessage: message }) }])
  }

  function remove(arn: string) {
    const share = find(arn)
    if (share.status !== 'ACTIVE') throw new Refused('InvalidStateTransitionException', 'It is being deleted.')
    share.status = 'DELETING'
    share.resource.status = 'DISASSOCIATED'
    share.principal.status = 'DISASSOCIATED'
    return { returnValue: true }
  }

  function perform(method: string, url: URL, body: string): object {
    const parse = <S extends z.ZodType>(schema: S): z.output<S> => {
      const result = schema.safeParse(JSON.parse(body))
      if (!result.success) throw new Refused('InvalidParameterException', z.prettifyError(result.error))
      return result.data
    }
    const call = `${method} ${url.pathname}`
    if (call === 'POST /createresourceshare') return create(parse(bodies['/createresourceshare']))
    if (call === 'POST /getresourceshares') return list(parse(bodies['/getresourceshares']))
    if (call === 'POST /getresourceshareassociations')
      return associations(parse(bodies['/getresourceshareassociations']))
    if (call === 'DELETE /deleteresourceshare') return remove(url.searchParams.get('resourceShareArn') ?? '')
    throw new Refused('UnknownOperationException', call, 404)
  }

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? '/', 'http://ram')
    const body = await text(req)
    calls.push(url.pathname)
    const isAbout = (text = '') => body.includes(text) || url.href.includes(text)
    const fault = faults.find(({ path, times, about }) => path === url.pathname && times > 0 && isAbout(about))
    if (fault) fault.times -= 1
    const outcome = !fault || fault.after ? attempt() : undefined
    await fault?.until
    if (fault?.status === 0) return void res.destroy()
    if (fault && fault.status !== 200)
      return refuse(res, new Refused(fault.code, 'A fault of the tests.', fault.status))
    if (outcome instanceof Refused) return refuse(res, outcome)
    res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(outcome))

    function attempt(): object {
      const { method = '', headers } = req
      const unsigned = signatureProblem({ method, url, headers, body }, SIGNER)
      try {
        if (unsigned) throw new Refused(unsigned, 'The request signature does not match.', 403)
        return perform(method, url, body)
      } catch (error) {
        if (error instanceof Refused) return error
        throw error
      }
    }
  }

  const server = createServer((req, res) => {
    answer(req, res).catch((error) => refuse(res, new Refused('ServerInternalException', String(error), 500)))
  })
  const port = await listenOnFreePort(server)

  return {
    url: `http://127.0.0.1:${port}`,
    calls,
    organization,
    hidden,
    /** Adds a fault and returns the function that removes it. */
    fault(given: Pick<Fault, 'path'> & Partial<Fault>) {
      const fault = { times: 1, status: 500, code: 'ServerInternalException', ...given }
      faults.push(fault)
      return () => {
        fault.times = 0
      }
    },
    /** Returns the shares with an account, newest last. */
    sharesWith: (account: string) => [...shares.values()].filter(({ principal }) => principal.entity === account),
    async stop() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const refuse = (res: ServerResponse, { status, code, message }: Refused): void =>
  void res
    .writeHead(status, {
      'content-type': 'application/json',
      'x-amzn-errortype': `${code}:http://internal.amazon.com/`,
    })
    .end(JSON.stringify({ message }))
