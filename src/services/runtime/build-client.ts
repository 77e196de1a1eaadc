import {
  BUILT_HEADER,
  BuiltWorker,
  FILE_FIELD,
  type FunctionBuild,
  type Issue,
  KEY_HEADER,
  ORGANIZATION_HEADER,
  ProbeResult,
  Refusal,
  SPEC_FIELD,
} from '../../builder/protocol.ts'
import type { SystemCtx } from '../../ctx.ts'
import { readParts } from '../../platform/blobs/part-reader.ts'

/** The program cannot be built from its source: the developer can fix it. */
export class BuildFailed extends Error {
  override name = 'BuildFailed'
  readonly issues: readonly Issue[]

  constructor(issues: readonly Issue[]) {
    super(issues.map(issueText).join('\n'))
    this.issues = issues
  }
}

/** The build is not possible at the moment, for example because a registry is down: the developer cannot fix it. */
export class BuildUnavailable extends Error {
  override name = 'BuildUnavailable'
}

/** Too many builds were waiting, so this one did not begin. */
export class BuilderBusy extends BuildUnavailable {
  override name = 'BuilderBusy'
}

const issueText = ({ message, file, line, column }: Issue): string =>
  file === undefined ? message : `${[file, line, column].filter((part) => part !== undefined).join(':')}: ${message}`

export interface SourceFile {
  path: string
  bytes: Uint8Array<ArrayBuffer>
}

export interface Builder extends Pick<SystemCtx, 'bindings'> {
  /** Organization of the build. */
  organizationId: string
}

/** An image as stored: only the builder and the isolate that runs it parse it. */
export type ImageText = string & { readonly isImage: true }

/** Bundles a function with its imports. Rejects with BuildFailed or BuildUnavailable. */
export async function buildFunction(
  builder: Builder,
  spec: FunctionBuild,
  files: readonly SourceFile[],
): Promise<ImageText> {
  const form = new FormData()
  form.set(SPEC_FIELD, JSON.stringify(spec))
  for (const { path, bytes } of files) form.append(FILE_FIELD, new Blob([bytes]), encodeURI(path))
  return imageIn(await ask(builder, '/function', form))
}

export interface WorkerBuild {
  image: ImageText
  crons: string[]
  /** The body must be read or canceled. */
  assets: { manifestBytes: number; bytes: number; body: ReadableStream<Uint8Array> } | undefined
}

const CHUNK_BYTES = 64 * 1024

/** Bundles a worker from its build context, a streamed .tar.gz. Rejects with BuildFailed or BuildUnavailable. */
export async function buildWorker(builder: Builder, context: ReadableStream<Uint8Array>): Promise<WorkerBuild> {
  const response = await send(builder, '/worker', context)
  const header = response.headers.get(BUILT_HEADER)
  if (header === null || !response.body) return resultOrThrow(Refusal.parse(await response.json()))
  const { crons, imageBytes, assets } = BuiltWorker.parse(JSON.parse(header))
  const parts = readParts(response.body)
  const image = new TextDecoder().decode(await parts.next(imageBytes)) as ImageText
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const chunk = await parts.next(CHUNK_BYTES)
      if (chunk.byteLength > 0) controller.enqueue(chunk)
      else controller.close()
    },
    cancel: (reason) => parts.cancel(reason),
  })
  return { image, crons, assets: assets && { ...assets, body } }
}

interface ProbeTarget {
  image: ImageText
  env: Record<string, string>
}

/** Starts a program once and returns the names of its handlers. Rejects with BuildFailed or BuildUnavailable. */
export async function probe(builder: Builder, { image, env }: ProbeTarget): Promise<readonly string[]> {
  const program = `{"image":${image},"env":${JSON.stringify(env)}}`
  return resultOrThrow(ProbeResult.parse(JSON.parse(await ask(builder, '/probe', program)))).handlers
}

async function ask(builder: Builder, path: string, body: BodyInit): Promise<string> {
  return (await send(builder, path, body)).text()
}

async function send({ bindings, organizationId }: Builder, path: string, body: BodyInit): Promise<Response> {
  const { BUILDER, BUILDER_KEY: key } = bindings
  const headers = { [ORGANIZATION_HEADER]: organizationId, ...(key && { [KEY_HEADER]: key }) }
  const response = await BUILDER.fetch(`http://builder${path}`, { method: 'POST', headers, body })
  if (!response.ok) throw new Error(`the builder answered ${response.status}`)
  return response
}

const IMAGE_PREFIX = '{"image":'

function imageIn(answer: string): ImageText {
  if (answer.startsWith(IMAGE_PREFIX)) return answer.slice(IMAGE_PREFIX.length, -1) as ImageText
  return resultOrThrow(Refusal.parse(JSON.parse(answer)))
}

function resultOrThrow<T extends object>(result: T | Refusal): Exclude<T, Refusal> {
  if ('issues' in result) throw new BuildFailed(result.issues)
  if ('unavailable' in result) throw new (result.isBusy ? BuilderBusy : BuildUnavailable)(result.unavailable)
  return result as Exclude<T, Refusal>
}
