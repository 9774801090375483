/** The worker that runs the page's sessions. */

import { handle } from "./model-host.js";
import { answerRequests } from "./worker-loop.js";

answerRequests(handle);
