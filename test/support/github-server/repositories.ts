import { createHash, randomUUID } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { packTar } from 'modern-tar'

export interface Pull {
  number: number
  state: 'open' | 'closed'
  head: { ref: string; repo: { id: number } | null }
  files: string[]
}

export interface Status {
  sha: string
  state: string
  description: string
  context: string
  target_url?: string
}

/** Texts by path; a text that begins with `->` is the target of a symbolic link. */
export type Files = Record<string, string>

export interface Fault {
  /** The method and path of a request. */
  match: string
  status: number
  times: number
  headers?: Record<string, string>
  message?: string
}

export interface Repository {
  id: number
  /** `owner/name` */
  name: string
  installationId: number
  defaultBranch: string
  branches: Map<string, string>
  commits: Map<string, Files>
  pulls: Pull[]
  statuses: Status[]
  faults: Fault[]
  /** Requests whose method and path contain this text wait until it is cleared. */
  held: string | undefined
  /** Methods and paths of all requests about the repository. */
  calls: string[]
}

const OTHERS_ID = 999_999_999

/** Creates the repositories, and the actions of users on them. Each action takes and returns JSON. */
export function createRepositories() {
  const all = new Map<number, Repository>()
  let number = 1_000

  const by = (id: number): Repository => {
    const found = all.get(id)
    if (!found) throw new Error(`no repository ${id}`)
    return found
  }

  const userActions = {
    add({ name, installationId }: { name: string; installationId?: number }) {
      number += 1
      const repository: Repository = {
        id: number,
        name,
        installationId: installationId ?? 50_000 + number,
        defaultBranch: 'main',
        branches: new Map(),
        commits: new Map(),
        pulls: [],
        statuses: [],
        faults: [],
        held: undefined,
        calls: [],
      }
      all.set(repository.id, repository)
      return { id: repository.id, installationId: repository.installationId }
    },
    rename({ id, name }: { id: number; name: string }) {
      by(id).name = name
    },
    commit({ id, branch, files }: { id: number; branch: string; files: Files }) {
      const sha = createHash('sha1').update(randomUUID()).digest('hex')
      by(id).commits.set(sha, files)
      by(id).branches.set(branch, sha)
      return { sha }
    },
    deleteBranch({ id, branch }: { id: number; branch: string }) {
      by(id).branches.delete(branch)
    },
    pull({ id, branch, files = [], fork = false }: { id: number; branch: string; files?: string[]; fork?: boolean }) {
      number += 1
      const head = { ref: branch, repo: { id: fork ? OTHERS_ID : id } }
      by(id).pulls.push({ number, state: 'open', head, files })
      return { number }
    },
    setPull({ id, pull, state }: { id: number; pull: number; state: Pull['state'] }) {
      for (const one of by(id).pulls) if (one.number === pull) one.state = state
    },
    fault({ id, ...fault }: Fault & { id: number }) {
      by(id).faults.push(fault)
    },
    hold({ id, match }: { id: number; match?: string | undefined }) {
      by(id).held = match
    },
    inspect({ id }: { id: number }) {
      const { statuses, calls, name } = by(id)
      return { statuses, calls, name }
    },
  }
  return { all, userActions }
}
export type UserActions = ReturnType<typeof createRepositories>['userActions']

/** Packs a commit as GitHub does: everything in one folder, after a header with the commit's id. */
export async function archiveOf({ name, commits }: Repository, sha: string): Promise<Buffer | undefined> {
  const files = commits.get(sha)
  if (!files) return undefined
  const folder = `${name.replace('/', '-')}-${sha.slice(0, 7)}/`
  const note = `52 comment=${sha}\n`
  const tar = await packTar([
    { header: { name: 'pax_global_header', type: 'pax-global-header', size: note.length }, body: note },
    { header: { name: folder, type: 'directory', size: 0 } },
    ...Object.entries(files).map(([path, text]) =>
      text.startsWith('->')
        ? { header: { name: folder + path, type: 'symlink' as const, size: 0, linkname: text.slice(2) } }
        : { header: { name: folder + path, size: Buffer.byteLength(text) }, body: text },
    ),
  ])
  return gzipSync(tar)
}
