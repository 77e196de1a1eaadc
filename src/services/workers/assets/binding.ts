import { WorkerEntrypoint } from 'cloudflare:workers'
import { createCtx } from '../../../ctx.ts'
import type { Bindings } from '../../../platform/bindings.ts'
import { type Assets, fetchAsset } from './serve.ts'

/** Entrypoint behind the `assets.binding` of a worker. */
export class WorkerAssets extends WorkerEntrypoint<Bindings, Assets> {
  override fetch(request: Request): Promise<Response> {
    const ctx = createCtx({ bindings: this.env, waitUntil: (work) => this.ctx.waitUntil(work) })
    return fetchAsset(ctx, this.ctx.props, request)
  }
}
