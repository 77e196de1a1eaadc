import product, { ProgramsHost as Programs } from '../../src/index.ts'
import type { Bindings } from '../../src/platform/bindings.ts'
import { fixedTime } from '../../src/platform/clock.ts'

export * from '../../src/index.ts'
export { BlobStore } from '../platform/blobs/worker.ts'

/** Lets a request bring its own time in `x-test-clock`, in epoch milliseconds. */
const withClock =
  <R extends Request, Rest extends unknown[], T>(fetch: (request: R, ...rest: Rest) => T) =>
  (request: R, ...rest: Rest): T => {
    const at = request.headers.get('x-test-clock')
    return at === null ? fetch(request, ...rest) : fixedTime.run(Number(at), () => fetch(request, ...rest))
  }

export const ProgramsHost = { fetch: withClock(Programs.fetch) } satisfies ExportedHandler<Bindings>

/** The deployed Worker, whose clock the tests set. */
export default { ...product, fetch: withClock(product.fetch) } satisfies ExportedHandler<Bindings>
