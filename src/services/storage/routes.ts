import { bucketRoutes, healthRoutes } from './bucket-routes.ts'
import { objectRoutes } from './object-routes.ts'
import { resumableRoutes } from './resumable/routes.ts'
import { area, type Route } from './route.ts'

/** The route table of the storage API. A row hides later rows of the same method that its path matches. */
export const storageRoutes: readonly Route[] = [
  ...area('health', healthRoutes),
  ...area('buckets', bucketRoutes),
  ...area('objects', objectRoutes),
  ...area('resumable uploads', resumableRoutes),
]
