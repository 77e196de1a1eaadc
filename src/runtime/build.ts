import {
  BuildResult,
  FILE_FIELD,
  type FunctionBuild,
  type Issue,
  type Probe,
  ProbeResult,
  SPEC_FIELD,
} from '../builder/protocol.ts'
import type { SystemCtx } from '../env.ts'
import type { Image } from './image.ts'

/** The program cannot be built as it was sent; the developer can mend it. */
export class BuildFailed extends Error {
  override name = 'BuildFailed'
  readonly issues: readonly Issue[]

  constructor(issues: readonly Issue[]) {
    super(issues.map(issueText).join('\n'))
    this.issues = issues
  }
}

/** Nobody who deploys can mend it: a registry is down, or the builder. */
export class BuildUnavailable extends Error {
  override name = 'BuildUnavailable'
}

const issueText = ({ message, file, line, column }: Issue): string =>
  file === undefined ? message : `${[file, line, column].filter((part) => part !== undefined).join(':')}: ${message}`

export interface SourceFile {
  path: string
  bytes: Uint8Array<ArrayBuffer>
}

type Builder = Pick<SystemCtx, 'bindings'>

/** Bundles a function with all that it imports. Rejects with BuildFailed or BuildUnavailable. */
export async function buildFunction(
  builder: Builder,
  spec: FunctionBuild,
  files: readonly SourceFile[],
): Promise<Image> {
  const form = new FormData()
  form.set(SPEC_FIELD, JSON.stringify(spec))
  for (const { path, bytes } of files) form.append(FILE_FIELD, new Blob([bytes]), path)
  return built(BuildResult.parse(await ask(builder, '/function', form))).image
}

/** Bundles a worker of its build context, a .tar.gz that is streamed. Rejects with BuildFailed or BuildUnavailable. */
export async function buildWorker(builder: Builder, context: ReadableStream<Uint8Array>): Promise<Image> {
  return built(BuildResult.parse(await ask(builder, '/worker', context))).image
}

/** Starts a program once, and tells which handlers it has. Rejects with BuildFailed or BuildUnavailable. */
export async function probe(builder: Builder, program: Probe): Promise<readonly string[]> {
  return built(ProbeResult.parse(await ask(builder, '/probe', JSON.stringify(program)))).handlers
}

async function ask({ bindings: { BUILDER } }: Builder, path: string, body: BodyInit): Promise<unknown> {
  const response = await BUILDER.fetch(`http://builder${path}`, { method: 'POST', body })
  if (!response.ok) throw new Error(`the builder answered ${response.status}`)
  return response.json()
}

type Refusal = { issues: Issue[] } | { unavailable: string }

function built<T extends object>(result: T | Refusal): Exclude<T, Refusal> {
  if ('issues' in result) throw new BuildFailed(result.issues)
  if ('unavailable' in result) throw new BuildUnavailable(result.unavailable)
  return result as Exclude<T, Refusal>
}
