import { BuildResult, FILE_FIELD, type FunctionBuild, type Issue, SPEC_FIELD } from '../builder/protocol.ts'
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

const issueText = ({ message, file, line, column }: Issue): string =>
  file === undefined ? message : `${[file, line, column].filter((part) => part !== undefined).join(':')}: ${message}`

export interface SourceFile {
  path: string
  bytes: Uint8Array<ArrayBuffer>
}

/** Bundles a function with all that it imports. Rejects with BuildFailed. */
export async function buildFunction(
  { bindings: { BUILDER } }: Pick<SystemCtx, 'bindings'>,
  spec: FunctionBuild,
  files: readonly SourceFile[],
): Promise<Image> {
  const form = new FormData()
  form.set(SPEC_FIELD, JSON.stringify(spec))
  for (const { path, bytes } of files) form.append(FILE_FIELD, new Blob([bytes]), path)
  const response = await BUILDER.fetch('http://builder/function', { method: 'POST', body: form })
  return imageIn(response)
}

async function imageIn(response: Response): Promise<Image> {
  if (!response.ok) throw new Error(`the builder answered ${response.status}`)
  const result = BuildResult.parse(await response.json())
  if ('issues' in result) throw new BuildFailed(result.issues)
  return result.image
}

/** Bundles a worker of its build context, a .tar.gz that is streamed. Rejects with BuildFailed. */
export async function buildWorker(ctx: Pick<SystemCtx, 'bindings'>, body: ReadableStream<Uint8Array>): Promise<Image> {
  const response = await ctx.bindings.BUILDER.fetch('http://builder/worker', { method: 'POST', body })
  return imageIn(response)
}
