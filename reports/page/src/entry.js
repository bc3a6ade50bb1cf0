// One script for both pages, since most of it is the libraries: starts what belongs to the page it is in.

import { begin as beginRecording } from "./main.js";
import { begin as beginStore } from "./store/main.js";

if (document.getElementById("flame-left")) beginRecording();
else beginStore();
