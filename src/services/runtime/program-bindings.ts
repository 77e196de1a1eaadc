import type { Assets } from '../workers/assets/serve.ts'
import type { OutboundProps } from './program-egress.ts'

/** Services that a program is connected to, created for each program. */
export interface ProgramBindings {
  /** Egress of the program. The database at this URL may have a private address. */
  outbound(databaseUrl: string | undefined): Fetcher
  console: Fetcher
  /** Static assets of the program. */
  assets: Fetcher | undefined
}

/** Entrypoints exported by index.ts that programs are connected to. */
interface Exports {
  FunctionOutbound(options: { props: OutboundProps }): Fetcher
  FunctionConsole(options: { props: { ref: string; programId: string } }): Fetcher
  WorkerAssets(options: { props: Assets }): Fetcher
}

interface Program {
  ref: string
  programId: string
  assets?: Assets | undefined
}

/** `execution` is the context of the Worker or of a Durable Object of it. */
export function programBindingsOf(execution: object, { assets, ...props }: Program): ProgramBindings {
  const { FunctionOutbound, FunctionConsole, WorkerAssets } = (execution as { exports: Exports }).exports
  return {
    outbound: (databaseUrl) => FunctionOutbound({ props: { ...props, databaseUrl } }),
    console: FunctionConsole({ props }),
    assets: assets && WorkerAssets({ props: assets }),
  }
}
