import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { jwtVerify } from 'jose'
import { listenOnFreePort } from '../listen.ts'
import { archiveOf, createRepositories, type Repository, type UserActions } from './repositories.ts'

interface Token {
  installationId: number
  repositoryIds: number[] | undefined
}

interface Asked {
  method: string
  /** The decoded path. */
  path: string
  query: URLSearchParams
  /** The parsed body. */
  body: Record<string, unknown>
  token: Token | undefined
  /** The request comes from the App itself. */
  isApp: boolean
}

interface Answer {
  status: number
  body?: unknown
  headers?: Record<string, string>
}

const NOT_FOUND: Answer = { status: 404, body: { message: 'Not Found' } }
const FORBIDDEN: Answer = { status: 403, body: { message: 'Resource not accessible by integration' } }

export type GithubServer = Awaited<ReturnType<typeof startGithubServer>>

/** Starts GitHub on this machine, as an App sees it. Tests perform the actions of users at `/_/{action}`. */
export async function startGithubServer() {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const appId = '4711'
  const tokens = new Map<string, Token>()
  const downloads = new Map<string, () => Promise<Buffer | undefined>>()
  const { all, userActions } = createRepositories()

  async function isApp(bearer: string): Promise<boolean> {
    try {
      const { payload } = await jwtVerify(bearer, publicKey, { algorithms: ['RS256'], issuer: appId })
      return (payload.exp ?? 0) - Math.floor(Date.now() / 1000) <= 600
    } catch {
      return false
    }
  }

  const seenBy = ({ installationId, repositoryIds }: Token): Repository[] =>
    Array.from(all.values()).filter(
      (one) => one.installationId === installationId && (!repositoryIds || repositoryIds.includes(one.id)),
    )

  function issue({ path, body }: Asked): Answer {
    const installationId = Number(/^\/app\/installations\/(\d+)\//.exec(path)?.[1])
    const repositoryIds = body.repository_ids as number[] | undefined
    const visible = seenBy({ installationId, repositoryIds: undefined })
    if (visible.length === 0) return NOT_FOUND
    if (repositoryIds?.some((id) => !visible.some((one) => one.id === id)))
      return {
        status: 422,
        body: { message: 'There is at least one repository that does not exist or is not accessible' },
      }
    const token = `ghs_${randomBytes(18).toString('hex')}`
    tokens.set(token, { installationId, repositoryIds })
    return { status: 201, body: { token, expires_at: new Date(Date.now() + 3_600_000).toISOString() } }
  }

  async function answer(asked: Asked): Promise<Answer> {
    const { path, token } = asked
    if (path === '/installation/repositories' && token) {
      const found = seenBy(token)
      return { status: 200, body: { total_count: found.length, repositories: found.slice(0, 1).map(described) } }
    }
    const [, name = '', rest = ''] = /^\/repos\/([^/]+\/[^/]+)(.*)$/.exec(path) ?? []
    const repository = Array.from(all.values()).find((one) => one.name === name)
    const bare = /^\/app\/installations\/\d+\/access_tokens$/.test(path)
    const about = repository ?? Array.from(all.values()).find((one) => bare && path.includes(`/${one.installationId}/`))
    about?.calls.push(`${asked.method} ${path}`)
    while (about?.held && `${asked.method} ${path}`.includes(about.held)) await delay(10)
    const fault = about?.faults.find(({ match, times }) => times > 0 && `${asked.method} ${path}`.includes(match))
    if (fault) {
      fault.times -= 1
      return {
        status: fault.status,
        body: { message: fault.message ?? 'injected fault' },
        ...(fault.headers && { headers: fault.headers }),
      }
    }
    if (bare)
      return asked.isApp ? issue(asked) : { status: 401, body: { message: 'A JSON web token could not be decoded' } }
    if (!repository) return NOT_FOUND
    if (rest === '/installation')
      return asked.isApp ? { status: 200, body: { id: repository.installationId } } : FORBIDDEN
    if (!token || !seenBy(token).includes(repository)) return NOT_FOUND
    return answerOf(repository, rest, asked)
  }

  async function answerOf(repository: Repository, rest: string, { method, query, body }: Asked): Promise<Answer> {
    const ok = (found: unknown): Answer => (found === undefined ? NOT_FOUND : { status: 200, body: found })
    if (rest === '') return ok(described(repository))
    const [, ref] = /^\/git\/ref\/heads\/(.+)$/.exec(rest) ?? []
    if (ref) {
      const sha = repository.branches.get(ref)
      return ok(sha && { ref: `refs/heads/${ref}`, object: { type: 'commit', sha } })
    }
    if (rest === '/pulls') {
      const [owner] = repository.name.split('/')
      const wanted = repository.pulls.filter(
        ({ state, head }) => state === 'open' && `${owner}:${head.ref}` === query.get('head'),
      )
      return ok(wanted.map(shownPull))
    }
    const [, number, files] = /^\/pulls\/(\d+)(\/files)?$/.exec(rest) ?? []
    const pull = repository.pulls.find((one) => one.number === Number(number))
    if (number && !pull) return NOT_FOUND
    if (pull && !files) return ok(shownPull(pull))
    if (pull) {
      const [page, size] = [Number(query.get('page')), Number(query.get('per_page'))]
      return ok(pull.files.slice((page - 1) * size, page * size).map((filename) => ({ filename, status: 'modified' })))
    }
    const [, sha = ''] = /^\/tarball\/(\w+)$/.exec(rest) ?? []
    if (sha) {
      const key = randomBytes(9).toString('hex')
      downloads.set(key, () => archiveOf(repository, sha))
      return { status: 302, headers: { location: `/codeload/${key}` } }
    }
    const [, commit] = /^\/statuses\/(\w+)$/.exec(rest) ?? []
    if (!commit || method !== 'POST') return NOT_FOUND
    if (!repository.commits.has(commit) || String(body.description).length > 140) return { status: 422, body: {} }
    repository.statuses.push({ ...(body as unknown as Repository['statuses'][number]), sha: commit })
    return { status: 201, body: {} }
  }

  async function respond(request: IncomingMessage): Promise<Answer & { bytes?: Buffer | undefined }> {
    const { pathname, searchParams: query } = new URL(request.url ?? '/', 'http://github')
    const { method = 'GET', headers } = request
    const sent = await text(request)
    const body = sent === '' ? {} : JSON.parse(sent)
    const action = /^\/_\/(\w+)$/.exec(pathname)?.[1]
    // The sender has the types (test/support/github.ts).
    if (action)
      return {
        status: 200,
        body: (userActions[action as keyof UserActions] as (input: unknown) => unknown)(body) ?? {},
      }
    if (!headers['user-agent']) return { status: 403, body: { message: 'Request forbidden by administrative rules' } }
    const download = /^\/codeload\/(\w+)$/.exec(pathname)?.[1]
    if (download) {
      if (headers.authorization) return { status: 400, body: { message: 'a token for somebody else' } }
      const bytes = await downloads.get(download)?.()
      return bytes ? { status: 200, bytes } : NOT_FOUND
    }
    const bearer = /^Bearer (.+)$/.exec(headers.authorization ?? '')?.[1] ?? ''
    const token = tokens.get(bearer)
    const asked = {
      method,
      path: decodeURIComponent(pathname),
      query,
      body,
      token,
      isApp: !token && (await isApp(bearer)),
    }
    return answer(asked)
  }

  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    respond(request).then(
      ({ status, body, headers, bytes }) =>
        response
          .writeHead(status, { 'content-type': 'application/json', ...headers })
          .end(bytes ?? (body === undefined ? '' : JSON.stringify(body))),
      (error) => response.writeHead(599).end(String(error)),
    )
  })
  const port = await listenOnFreePort(server)
  const settings = {
    GITHUB_APP_ID: appId,
    // The format in which GitHub issues the key.
    GITHUB_APP_PRIVATE_KEY: privateKey.export({ type: 'pkcs1', format: 'pem' }).toString(),
    GITHUB_WEBHOOK_SECRET: randomBytes(20).toString('hex'),
    GITHUB_API_URL: `http://127.0.0.1:${port}`,
  }
  return { settings, close: () => void server.close() }
}

const described = ({ id, name, defaultBranch }: Repository) => ({ id, full_name: name, default_branch: defaultBranch })

const shownPull = ({ number, state, head }: Repository['pulls'][number]) => ({ number, state, head })
